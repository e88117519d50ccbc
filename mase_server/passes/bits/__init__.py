"""How many bits a graph's values take."""
