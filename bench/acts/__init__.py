"""Acts: does a model use an op where it should, only there, the right one, and with the right arguments?"""
