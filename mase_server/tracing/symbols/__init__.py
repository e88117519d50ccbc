"""From the sizes seen at several probes to named dimensions and expressions in them."""
