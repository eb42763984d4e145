"""The sweep: dense and sparse memories of the same worlds, built from buffers of many sizes."""
