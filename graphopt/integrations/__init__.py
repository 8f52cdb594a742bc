"""graphopt inside other people's tools; each module needs its tool."""
