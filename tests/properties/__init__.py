"""Random interleavings against a model of the promises."""
