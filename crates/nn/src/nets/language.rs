//! Language models: an LSTM (Zaremba et al., 2014) and a decoder Transformer (Vaswani et al., 2017, norms first).

use crate::error::NnError;
use crate::layer::{Flow, Layer};

use super::Net;

/// The sizes of a language model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LanguageModel {
    /// Words.
    pub words: usize,
    /// Width of an embedding.
    pub embedding: usize,
    /// Width of a layer.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Attention heads of a Transformer.
    pub heads: usize,
    /// Longest sequence of a Transformer.
    pub positions: usize,
    /// Dropout probability.
    pub dropout: f32,
    /// Whether the last layer uses the weights of the embedding.
    pub tied: bool,
}

fn linear(name: &str, out: usize, tied: Option<String>) -> Layer {
    Layer::Linear {
        name: name.to_owned(),
        out,
        bias: true,
        tied,
    }
}

impl LanguageModel {
    fn embedding(&self, width: usize, positions: usize) -> Layer {
        Layer::Embedding {
            name: "encoder".to_owned(),
            words: self.words,
            width,
            positions,
        }
    }

    /// The last layer, named as in PyTorch's example of a language model.
    fn decoder(&self) -> Layer {
        linear(
            "decoder",
            self.words,
            self.tied.then(|| "encoder".to_owned()),
        )
    }
}

/// Embedding, LSTM layers, and a layer back to words; dropout before, between and after them.
pub fn lstm(model: &LanguageModel) -> Result<Net, NnError> {
    let mut layers = vec![model.embedding(model.embedding, 0)];
    let drop = (model.dropout > 0.0).then_some(Layer::Dropout(model.dropout));
    layers.extend(drop.clone());
    for layer in 0..model.layers {
        layers.push(Layer::Lstm {
            name: "rnn".to_owned(),
            layer,
            hidden: model.hidden,
        });
        layers.extend(drop.clone());
    }
    layers.push(model.decoder());
    Net::new(layers, Flow::Ids)
}

/// Embedding of words and positions, blocks of attention and two linear layers, a norm, and a layer back to words.
pub fn transformer(model: &LanguageModel) -> Result<Net, NnError> {
    let drop = (model.dropout > 0.0).then_some(Layer::Dropout(model.dropout));
    let mut layers = vec![model.embedding(model.hidden, model.positions)];
    layers.extend(drop.clone());
    for layer in 0..model.layers {
        let part = |part: &str| format!("transformer_encoder.layers.{layer}.{part}");
        let norm = |name: &str| Layer::LayerNorm { name: part(name) };
        let residual = |mut body: Vec<Layer>| {
            body.extend(drop.clone());
            Layer::Residual {
                body,
                shortcut: vec![],
                relu: false,
            }
        };
        let attention = Layer::Attention {
            name: part("self_attn"),
            heads: model.heads,
        };
        layers.push(residual(vec![norm("norm1"), attention]));
        let wide = linear(&part("linear1"), 4 * model.hidden, None);
        let back = linear(&part("linear2"), model.hidden, None);
        layers.push(residual(vec![norm("norm2"), wide, Layer::Gelu, back]));
    }
    layers.push(Layer::LayerNorm {
        name: "transformer_encoder.norm".to_owned(),
    });
    layers.push(model.decoder());
    Net::new(layers, Flow::Ids)
}
