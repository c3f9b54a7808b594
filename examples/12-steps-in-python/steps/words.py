"""Shared by the steps: a script imports what is beside it."""


def found_in(text, words):
    return [word for word in words if word in text.lower()]
