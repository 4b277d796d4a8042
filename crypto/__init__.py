"""Packed Paillier: keys, slots, ciphertexts. Nothing here knows about Ray or the network."""
