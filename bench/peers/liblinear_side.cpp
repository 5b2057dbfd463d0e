// LIBLINEAR's side of the comparisons: reads LIBSVM text with the reader of its `train` command, solves
// -s 3 -c 1 without bias, and prints one JSON object.
//
//   liblinear_side read FILE                       seconds of the reader
//   liblinear_side train FILE EPSILON TEST|-       objective in float64 and accuracies
//
// Built by peers.py from train.c, linear.cpp, newton.cpp and blas/ of the release; its iteration
// cap is a default argument there, and a second build has it raised.
#define main liblinear_main
#include "train.c"
#undef main
#include <time.h>

static double now() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double cpu() {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static bool capped = false;
static void listen(const char *text) {
    if (strstr(text, "reaching max number of iterations")) capped = true;
}

// Accuracy over the problem just read; hinge losses are summed into *loss.
static double measure(const struct model *m, double *loss) {
    long right = 0;
    for (int i = 0; i < prob.l; i++) {
        double score = 0;
        for (const feature_node *x = prob.x[i]; x->index != -1; x++)
            if (x->index <= m->nr_feature) score += m->w[x->index - 1] * x->value;
        double sign = prob.y[i] == m->label[0] ? 1 : -1;
        if (loss && sign * score < 1) *loss += 1 - sign * score;
        right += (score > 0) == (sign > 0);
    }
    return double(right) / prob.l;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    bias = -1;
    double wall = now(), processor = cpu();
    read_problem(argv[2]);
    wall = now() - wall;
    processor = cpu() - processor;
    if (!strcmp(argv[1], "read")) {
        printf("{\"read_s\":%.4f,\"cpu_s\":%.4f,\"rows\":%d}\n", wall, processor, prob.l);
        return 0;
    }
    memset(&param, 0, sizeof param);
    param.solver_type = L2R_L1LOSS_SVC_DUAL;
    param.C = 1;
    param.eps = atof(argv[3]);
    param.regularize_bias = 1;
    set_print_string_function(listen);
    double seconds = cpu();
    struct model *m = train(&prob, &param);
    seconds = cpu() - seconds;
    double primal = 0, test = -1;
    for (int j = 0; j < m->nr_feature; j++) primal += 0.5 * m->w[j] * m->w[j];
    double accuracy = measure(m, &primal);
    if (argc > 4 && strcmp(argv[4], "-")) {
        read_problem(argv[4]);
        test = measure(m, NULL);
    }
    printf("{\"primal\":%.10g,\"train_accuracy\":%.6f,\"test_accuracy\":%.6f,\"train_cpu_s\":%.3f,\"capped\":%d}\n",
           primal, accuracy, test, seconds, capped);
    return 0;
}
