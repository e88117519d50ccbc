"""One run of a model, recorded: the real forward on meta tensors, one fx node for each torch call."""
