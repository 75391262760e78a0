"""How does a user test a skill?"""
