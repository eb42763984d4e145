"""When does sparsity pay? The same worlds with buffers of every size, dense and sparse."""
