"""Pure, stacked kernels: no algorithm, no input or output, no compilation."""
