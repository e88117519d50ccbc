"""Recording by running: the real forward on meta tensors, one fx node per torch call."""
