"""BERT intent detection: which intent does a sentence have?"""
