"""A network for use without panas: as an ONNX model, a program of torch, or its weights."""
