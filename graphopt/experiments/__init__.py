"""Questions about graphopt itself, which no `optimize` asks; nothing but the commands that ask them imports this.

calibration   do predicted prices agree with the clock, over random rewrites, and which correction follows?
stats         how often is each rule of a library tried, found and applied on a model?
"""
