"""HTML without a server: elements, charts, pictures of weights, pages of decisions and paths; they open offline."""
