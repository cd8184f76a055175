"""Deployment to robots: wire format of messages, export to C, ONNX and NumPy, swarms of processes, locality audit."""
