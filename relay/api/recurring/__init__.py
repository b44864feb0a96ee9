"""The calls about recurrences: between protobuf messages and core's values."""
