//! Nets as data: lists of layers; parameters, shapes and cost follow from them without running anything.

use crate::error::NnError;
use crate::operands::Window;

/// One layer. Names are those of PyTorch's modules if there is a counterpart.
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// A convolution.
    Conv {
        /// Prefix of its parameters.
        name: String,
        /// Channels it makes.
        out: usize,
        /// Kernel, stride and padding.
        at: Window,
        /// Whether it adds a bias.
        bias: bool,
    },
    /// A batch norm, optionally followed by a ReLU.
    BatchNorm {
        /// Prefix of its parameters.
        name: String,
        /// Whether a ReLU follows.
        relu: bool,
        /// Whether it learns a scale; its weight stays 1 otherwise.
        scale: bool,
    },
    /// A layer norm.
    LayerNorm {
        /// Prefix of its parameters.
        name: String,
    },
    /// max(x, 0).
    Relu,
    /// x·Φ(x).
    Gelu,
    /// The largest of each window.
    MaxPool(Window),
    /// The mean over height and width.
    Average,
    /// An image as one row, channel by channel as PyTorch has it.
    Flatten,
    /// A fully connected layer.
    Linear {
        /// Prefix of its parameters.
        name: String,
        /// Width it makes.
        out: usize,
        /// Whether it adds a bias.
        bias: bool,
        /// Name of the embedding that shares its weight.
        tied: Option<String>,
    },
    /// Zeros with this chance while training.
    Dropout(f32),
    /// body(x) + shortcut(x); no shortcut is x itself.
    Residual {
        /// The longer branch.
        body: Vec<Layer>,
        /// The shorter branch.
        shortcut: Vec<Layer>,
        /// Whether a ReLU follows the sum.
        relu: bool,
    },
    /// Word ids to rows, plus a row for each position if there are any.
    Embedding {
        /// Prefix of its parameters.
        name: String,
        /// Words.
        words: usize,
        /// Width of a row.
        width: usize,
        /// Longest sequence of a net with positions; 0 for none.
        positions: usize,
    },
    /// Sparse rows to rows: the sum of the rows of a table that are the features, times their values over the length of
    /// the sparse row, and a bias.
    Bag {
        /// Prefix of its parameters.
        name: String,
        /// Width it makes.
        out: usize,
    },
    /// One layer of an LSTM.
    Lstm {
        /// Prefix of its parameters.
        name: String,
        /// Its index in the stack.
        layer: usize,
        /// Width it makes.
        hidden: usize,
    },
    /// Causal attention with its projections.
    Attention {
        /// Prefix of its parameters.
        name: String,
        /// Heads, which divide the width.
        heads: usize,
    },
}

/// The shape between layers, for one example or one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// An image of height, width and channels.
    Image(usize, usize, usize),
    /// Word ids.
    Ids,
    /// A sparse row of this many features.
    Bag(usize),
    /// A row of this many numbers.
    Row(usize),
}

impl From<[usize; 3]> for Flow {
    fn from([height, width, channels]: [usize; 3]) -> Flow {
        Flow::Image(height, width, channels)
    }
}

/// How a parameter begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All the same.
    Constant(f32),
    /// Normal around 0 with this deviation.
    Normal(f32),
    /// Uniform between minus and plus this.
    Uniform(f32),
}

/// The role of a parameter in the optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Trained, with weight decay.
    Weight,
    /// Trained, without weight decay: biases and norms.
    Shift,
    /// Not trained: running statistics.
    Statistic,
    /// Not trained: it stays as it begins.
    Fixed,
}

/// A parameter of a net.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// PyTorch's name.
    pub name: String,
    /// Its sizes here: weights of convolutions are [out, height, width, in], channels last.
    pub shape: Vec<usize>,
    /// How it begins.
    pub init: Init,
    /// Its role in the optimiser.
    pub role: Role,
    /// If a linear layer follows a flattened image: its channels, height and width.
    pub flattened: Option<[usize; 3]>,
}

impl Parameter {
    /// Numbers in it.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Results of a walk over the layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Parameters in the order of the layers.
    pub parameters: Vec<Parameter>,
    /// Multiplications of a forward pass for an example or a word.
    pub multiplications: u64,
    /// Numbers that the layers put out for an example or a word.
    pub activations: u64,
    /// The image that was flattened last, for the linear layer after it.
    flattened: Option<[usize; 3]>,
}

impl Summary {
    fn add(&mut self, name: &str, part: &str, shape: &[usize], init: Init, role: Role) {
        self.parameters.push(Parameter {
            name: format!("{name}.{part}"),
            shape: shape.to_vec(),
            init,
            role,
            flattened: None,
        });
    }
}

fn misfit(layer: &str, flow: Flow) -> NnError {
    NnError::Net(format!("{layer} cannot follow {flow:?}"))
}

fn small(what: &str, height: usize, width: usize) -> NnError {
    NnError::Net(format!(
        "an image of {height}×{width} is too small for {what}; give larger images, such as by augmentation resize:224"
    ))
}

impl Layer {
    /// Adds this layer to `summary` and returns the shape of its output.
    pub fn follow(&self, flow: Flow, summary: &mut Summary) -> Result<Flow, NnError> {
        use Role::{Fixed, Shift, Statistic, Weight};
        let out = match (self, flow) {
            (
                Layer::Conv {
                    name,
                    out,
                    at,
                    bias,
                },
                Flow::Image(h, w, c),
            ) => {
                let (height, width) = (at.over(h), at.over(w));
                if height * width == 0 {
                    return Err(small(name, h, w));
                }
                // He et al., 2015, by the fan out.
                let deviation = (2.0 / (out * at.kernel * at.kernel) as f32).sqrt();
                let shape = [*out, at.kernel, at.kernel, c];
                summary.add(name, "weight", &shape, Init::Normal(deviation), Weight);
                if *bias {
                    summary.add(name, "bias", &[*out], Init::Constant(0.0), Shift);
                }
                summary.multiplications +=
                    (height * width * shape.iter().product::<usize>()) as u64;
                Flow::Image(height, width, *out)
            }
            (Layer::BatchNorm { name, scale, .. }, Flow::Image(_, _, width) | Flow::Row(width)) => {
                let role = if *scale { Shift } else { Fixed };
                summary.add(name, "weight", &[width], Init::Constant(1.0), role);
                summary.add(name, "bias", &[width], Init::Constant(0.0), Shift);
                let mean = Init::Constant(0.0);
                summary.add(name, "running_mean", &[width], mean, Statistic);
                let variance = Init::Constant(1.0);
                summary.add(name, "running_var", &[width], variance, Statistic);
                flow
            }
            (Layer::LayerNorm { name }, Flow::Row(width)) => {
                summary.add(name, "weight", &[width], Init::Constant(1.0), Shift);
                summary.add(name, "bias", &[width], Init::Constant(0.0), Shift);
                flow
            }
            (Layer::Relu | Layer::Gelu | Layer::Dropout(_), Flow::Image(..) | Flow::Row(_)) => flow,
            (Layer::MaxPool(at), Flow::Image(h, w, c)) => {
                let (height, width) = (at.over(h), at.over(w));
                if height * width == 0 {
                    return Err(small("a pool", h, w));
                }
                Flow::Image(height, width, c)
            }
            (Layer::Average, Flow::Image(_, _, c)) => Flow::Row(c),
            (Layer::Flatten, Flow::Image(h, w, c)) => {
                summary.flattened = Some([c, h, w]);
                Flow::Row(h * w * c)
            }
            (
                Layer::Linear {
                    name,
                    out,
                    bias,
                    tied,
                },
                Flow::Row(width),
            ) => {
                let bound = 1.0 / (width as f32).sqrt();
                let flattened = summary.flattened.take();
                match tied {
                    None => {
                        let shape = [*out, width];
                        summary.add(name, "weight", &shape, Init::Uniform(bound), Weight);
                        let last = summary.parameters.last_mut().expect("just added");
                        last.flattened = flattened;
                    }
                    Some(embedding) => {
                        let weight = format!("{embedding}.weight");
                        let fits = summary
                            .parameters
                            .iter()
                            .any(|p| p.name == weight && p.shape == [*out, width]);
                        if !fits {
                            return Err(NnError::Net(format!(
                                "tied weights need an embedding as wide as the last layer, {width}; give both the same width, or do not tie them"
                            )));
                        }
                    }
                }
                if *bias {
                    summary.add(name, "bias", &[*out], Init::Uniform(bound), Shift);
                }
                summary.multiplications += (width * out) as u64;
                Flow::Row(*out)
            }
            (Layer::Residual { body, shortcut, .. }, _) => {
                let long = follow(body, flow, summary)?;
                let short = follow(shortcut, flow, summary)?;
                if long != short {
                    return Err(NnError::Net(format!(
                        "the two branches of a residual layer end in {long:?} and {short:?}"
                    )));
                }
                long
            }
            (
                Layer::Embedding {
                    name,
                    words,
                    width,
                    positions,
                },
                Flow::Ids,
            ) => {
                let init = if *positions > 0 {
                    Init::Normal(0.02)
                } else {
                    Init::Uniform(0.1)
                };
                summary.add(name, "weight", &[*words, *width], init, Weight);
                if *positions > 0 {
                    let shape = [*positions, *width];
                    let name = format!("{name}_positions");
                    summary.add(&name, "weight", &shape, init, Weight);
                }
                Flow::Row(*width)
            }
            (Layer::Bag { name, out }, Flow::Bag(width)) => {
                let init = Init::Normal(1.0 / (*out as f32).sqrt());
                summary.add(name, "weight", &[width, *out], init, Weight);
                summary.add(name, "bias", &[*out], Init::Constant(0.0), Shift);
                Flow::Row(*out)
            }
            (
                Layer::Lstm {
                    name,
                    layer,
                    hidden,
                },
                Flow::Row(width),
            ) => {
                let init = Init::Uniform(1.0 / (*hidden as f32).sqrt());
                let gates = 4 * hidden;
                let part = |what: &str| format!("{what}_l{layer}");
                summary.add(name, &part("weight_ih"), &[gates, width], init, Weight);
                summary.add(name, &part("weight_hh"), &[gates, *hidden], init, Weight);
                summary.add(name, &part("bias_ih"), &[gates], init, Shift);
                summary.add(name, &part("bias_hh"), &[gates], init, Shift);
                summary.multiplications += (gates * (width + hidden)) as u64;
                Flow::Row(*hidden)
            }
            (Layer::Attention { name, heads }, Flow::Row(width)) => {
                if width % heads != 0 {
                    return Err(NnError::Net(format!(
                        "a width of {width} is not divisible by {heads} heads; give a number of heads that divides it"
                    )));
                }
                // Glorot and Bengio, 2010.
                let bound = (6.0 / (4 * width) as f32).sqrt();
                let (zero, wide) = (Init::Constant(0.0), [3 * width, width]);
                summary.add(name, "in_proj_weight", &wide, Init::Uniform(bound), Weight);
                summary.add(name, "in_proj_bias", &[3 * width], zero, Shift);
                let bound = Init::Uniform(1.0 / (width as f32).sqrt());
                summary.add(name, "out_proj.weight", &[width, width], bound, Weight);
                summary.add(name, "out_proj.bias", &[width], zero, Shift);
                summary.multiplications += (4 * width * width) as u64;
                flow
            }
            (Layer::Conv { name, .. }, _) => return Err(misfit(name, flow)),
            _ => return Err(misfit(&format!("{self:?}"), flow)),
        };
        summary.activations += match out {
            Flow::Image(h, w, c) => (h * w * c) as u64,
            Flow::Row(width) => width as u64,
            Flow::Ids | Flow::Bag(_) => 1,
        };
        Ok(out)
    }
}

/// All layers after one another.
pub fn follow(layers: &[Layer], flow: Flow, summary: &mut Summary) -> Result<Flow, NnError> {
    layers
        .iter()
        .try_fold(flow, |flow, layer| layer.follow(flow, summary))
}
