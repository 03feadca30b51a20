"""Functions and frames of programs: what ELF files say, and the way from registers and a copied stack to its calls.

Needs no privilege: it reads files, and bytes that others have captured.
"""
