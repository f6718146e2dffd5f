//! Values: JSON with proto field names as Contiv writes it, or binary protobuf.
