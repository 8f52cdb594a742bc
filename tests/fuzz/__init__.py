"""Random models, rewritten at random: does what comes out compute the same?"""
