"""What kind of processor a computation runs on."""

import jax


def default_platform() -> str:
    """Platform of the device that computes what is not placed otherwise: "cpu", "gpu"
    or "tpu". Where `jax.default_device` names one it is that one's, so that a machine
    with an accelerator computes on its CPU as other CPUs do.
    """
    device = jax.config.values["jax_default_device"]
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform
