//! Nets on devices.

use burn_autodiff::Autodiff;
use burn_flex::Flex;
use pelton_comm::Comm;
use pelton_softmax::{HeadOptions, class_head};

use crate::classifier::{Classifier, ClassifierOptions};
use crate::error::NnError;
use crate::features::FeatureNet;
use crate::nets::Net;
use crate::on_device::OnDevice;
#[cfg(feature = "cuda")]
use crate::ops::Ops;
use crate::pipelined::Pipelined;
use crate::trainer::Trainer;

/// What a net is run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA device, by number.
    #[cfg(feature = "cuda")]
    Cuda(usize),
}

impl std::str::FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Device, String> {
        let number = match text.split_once(':') {
            None if text == "cpu" => return Ok(Device::Cpu),
            None if text == "cuda" => Some(0),
            Some(("cuda", number)) => number.parse().ok(),
            _ => None,
        };
        let number: usize = number
            .ok_or_else(|| format!("`{text}` is not a device: use cpu, cuda or cuda:NUMBER"))?;
        #[cfg(feature = "cuda")]
        return Ok(Device::Cuda(number));
        #[cfg(not(feature = "cuda"))]
        Err(format!(
            "this build has no device cuda:{number}: build it with the feature `cuda`, or use cpu"
        ))
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            #[cfg(feature = "cuda")]
            Device::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// A net on a device; all ranks of `comm` begin with the same parameters, and each takes a part of every batch.
pub fn trainer(net: Net, device: Device, seed: u64, comm: Comm) -> Box<dyn Trainer> {
    match device {
        Device::Cpu => Box::new(OnDevice::<Autodiff<Flex>>::new(
            net,
            Default::default(),
            seed,
            comm,
        )),
        #[cfg(feature = "cuda")]
        Device::Cuda(number) => Box::new(OnDevice::<Autodiff<burn_cuda::Cuda>>::new(
            net,
            burn_cuda::CudaDevice::new(number),
            seed,
            comm,
        )),
    }
}

/// A net whose layers lie on the ranks of `comm`, each with its parameters and their optimiser; every batch, of whose
/// words each rank brings a part, goes through all of them in pieces. Begins as [`trainer`] does.
///
/// Errors: fewer layers than ranks; a net for images, whose batch norms would see pieces.
pub fn pipelined(
    net: Net,
    device: Device,
    seed: u64,
    comm: Comm,
) -> Result<Box<dyn Trainer>, NnError> {
    Ok(match device {
        Device::Cpu => Box::new(Pipelined::<Autodiff<Flex>>::new(
            net,
            Default::default(),
            seed,
            comm,
        )?),
        #[cfg(feature = "cuda")]
        Device::Cuda(number) => Box::new(Pipelined::<Autodiff<burn_cuda::Cuda>>::new(
            net,
            burn_cuda::CudaDevice::new(number),
            seed,
            comm,
        )?),
    })
}

/// A net whose rows are the features of a head over very many classes, both divided over the ranks of `comm`.
///
/// Errors: a head for another number of features, or that cannot be made.
pub fn classifier(
    net: Net,
    head: &HeadOptions,
    options: ClassifierOptions,
    device: Device,
    seed: u64,
    comm: Comm,
) -> Result<Box<dyn Trainer>, NnError> {
    let head = class_head(head, comm.duplicate()?)?;
    let for_net = comm.duplicate()?;
    let net: Box<dyn FeatureNet> = match device {
        Device::Cpu => Box::new(
            OnDevice::<Autodiff<Flex>>::new(net, Default::default(), seed, for_net)
                .with_density(options.density),
        ),
        #[cfg(feature = "cuda")]
        Device::Cuda(number) => Box::new(
            OnDevice::<Autodiff<burn_cuda::Cuda>>::new(
                net,
                burn_cuda::CudaDevice::new(number),
                seed,
                for_net,
            )
            .with_density(options.density),
        ),
    };
    Ok(Box::new(Classifier::new(net, head, comm, options)?))
}

#[cfg(feature = "cuda")]
impl Ops for burn_cuda::Cuda {}
#[cfg(feature = "cuda")]
impl Ops for Autodiff<burn_cuda::Cuda> {}

#[cfg(test)]
mod tests {
    use super::Device;

    #[test]
    fn devices_are_named() {
        assert_eq!("cpu".parse(), Ok(Device::Cpu));
        for wrong in ["", "gpu", "cuda:x", "cpu:0"] {
            let error = wrong.parse::<Device>().unwrap_err();
            assert!(error.contains("cuda:NUMBER"), "{error}");
        }
        #[cfg(not(feature = "cuda"))]
        assert!("cuda:1".parse::<Device>().unwrap_err().contains("feature"));
    }
}
