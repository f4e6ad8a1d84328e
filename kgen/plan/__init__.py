"""Planning: memory expressions from lowered kernels, tile candidates, and the record that a build reads."""
