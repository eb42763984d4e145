"""The paper's experiments, and the demonstration that `sgm demo` shows."""
