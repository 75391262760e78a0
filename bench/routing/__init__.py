"""Routing of messages in a conversation: which skill does a model run?"""
