"""The paper's benchmarks, and the demonstration that `sgm demo` shows."""
