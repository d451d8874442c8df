"""A project for data that nobody has described: what files hold, what is decided by that, and the texts to begin with.

`guessing` tells the form of a file by a look at its beginning, `looking` reads the files as a whole, `texts` writes the
parameters, templates and `.gitignore` of `espalier init`, `treebanks` knows what is different where files hold trees.
Whatever is guessed or decided comes back as a sentence.
"""
