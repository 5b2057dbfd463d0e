"""Prints LIBLINEAR's prediction for each row: python liblinear_predicts.py MODEL DATA"""
import sys
from liblinear.liblinearutil import load_model, predict, svm_read_problem

model = load_model(sys.argv[1])
y, x = svm_read_problem(sys.argv[2])
for label in predict(y, x, model, "-q")[0]:
    print(label)
