"""Controllers on robots: the message as bytes, one agent's controller as C, ONNX or NumPy, swarms, and the audit."""
