"""graphopt: rewrite an ONNX graph until ONNX Runtime runs it faster, and prove it."""
