/* barnes: gravity between bodies, by an octree.
 *
 * The method of J. Barnes and P. Hut, "A hierarchical O(N log N) force-calculation algorithm", Nature 324,
 * 1986; as a test of allocators after its use in Hoard's paper and in SPLASH-2. Stresses: placement. A tree
 * of objects of one size is built body by body, walked many times in another order, and freed; few requests
 * beside much computation, so that what counts is where objects lie. The main thread builds and frees the
 * tree; forces are computed by all threads.
 *
 * Units: bodies; steps of time. */
#include "program.h"

#include <math.h>

/* A cell farther away than its size by this factor counts as one body. */
static const double OPENING = 0.7, SOFTENING = 0.05, STEP = 0.01;
enum { DEPTH_MAX = 64 };

static uint64_t bodies = 20000, steps = 4, threads = 2, seed = 1;

struct vector {
    double x, y, z;
};

struct body {
    struct vector place, speed, force;
    double mass;
};

struct cell {
    struct vector centre, heart; /* of the cube, of the mass */
    double half, mass;
    uint32_t count;
    struct body *only; /* of a leaf */
    struct cell *children[8];
};

static struct body *all;
static struct cell *root;
static struct ledger cells;

static struct cell *cell_new(struct vector centre, double half) {
    struct cell *cell = malloc(sizeof *cell);
    CHECK(cell != NULL, "no memory for a cell");
    took(&cells, sizeof *cell);
    *cell = (struct cell){.centre = centre, .half = half};
    return cell;
}

static void cell_free(struct cell *cell) {
    for (int i = 0; i < 8; i++)
        if (cell->children[i] != NULL) cell_free(cell->children[i]);
    gave(&cells, sizeof *cell);
    free(cell);
}

static void insert(struct cell *cell, struct body *body, int depth);

static void insert_below(struct cell *cell, struct body *body, int depth) {
    int east = body->place.x >= cell->centre.x, north = body->place.y >= cell->centre.y;
    int up = body->place.z >= cell->centre.z;
    struct cell **child = &cell->children[east | north << 1 | up << 2];
    if (*child == NULL) {
        double half = cell->half / 2;
        struct vector centre = {cell->centre.x + (east ? half : -half), cell->centre.y + (north ? half : -half),
                                cell->centre.z + (up ? half : -half)};
        *child = cell_new(centre, half);
    }
    insert(*child, body, depth + 1);
}

static void insert(struct cell *cell, struct body *body, int depth) {
    CHECK(depth < DEPTH_MAX, "two bodies in one place");
    if (cell->count == 0) {
        cell->only = body;
    } else {
        struct body *other = cell->only;
        cell->only = NULL;
        if (other != NULL) insert_below(cell, other, depth);
        insert_below(cell, body, depth);
    }
    cell->count++;
}

/* Masses and their centres, from the leaves up; the bodies that were found. */
static uint32_t weigh(struct cell *cell) {
    if (cell->only != NULL) {
        cell->mass = cell->only->mass;
        cell->heart = cell->only->place;
        return 1;
    }
    uint32_t found = 0;
    struct vector sum = {0, 0, 0};
    for (int i = 0; i < 8; i++) {
        struct cell *child = cell->children[i];
        if (child == NULL) continue;
        found += weigh(child);
        cell->mass += child->mass;
        sum.x += child->heart.x * child->mass;
        sum.y += child->heart.y * child->mass;
        sum.z += child->heart.z * child->mass;
    }
    cell->heart = (struct vector){sum.x / cell->mass, sum.y / cell->mass, sum.z / cell->mass};
    CHECK(found == cell->count, "a cell of %u bodies has %u", cell->count, found);
    return found;
}

static void pull(const struct cell *cell, struct body *body) {
    if (cell->only == body) return;
    double x = cell->heart.x - body->place.x, y = cell->heart.y - body->place.y, z = cell->heart.z - body->place.z;
    double square = x * x + y * y + z * z + SOFTENING * SOFTENING, size = 2 * cell->half;
    if (cell->only == NULL && size * size > OPENING * OPENING * square) {
        for (int i = 0; i < 8; i++)
            if (cell->children[i] != NULL) pull(cell->children[i], body);
        return;
    }
    double force = cell->mass / (square * sqrt(square));
    body->force.x += x * force;
    body->force.y += y * force;
    body->force.z += z * force;
}

static void *compute(void *argument) {
    uint64_t number = *(uint64_t *)argument;
    for (uint64_t i = bodies * number / threads; i < bodies * (number + 1) / threads; i++) {
        all[i].force = (struct vector){0, 0, 0};
        pull(root, &all[i]);
    }
    return NULL;
}

/* More bodies near the middle, none at rest. */
static void place_bodies(void) {
    uint64_t random = mix(seed);
    for (uint64_t i = 0; i < bodies; i++) {
        double radius = pow(uniform(&random), 1.5) * 10, around = 2 * M_PI * uniform(&random);
        double up = 2 * uniform(&random) - 1, flat = sqrt(1 - up * up);
        all[i].mass = 1.0 / (double)bodies;
        all[i].place = (struct vector){radius * flat * cos(around), radius * flat * sin(around), radius * up};
        all[i].speed = (struct vector){-0.1 * all[i].place.y, 0.1 * all[i].place.x, 0};
    }
}

static double widest(void) {
    double most = 0;
    for (uint64_t i = 0; i < bodies; i++) {
        most = fmax(most, fmax(fabs(all[i].place.x), fmax(fabs(all[i].place.y), fabs(all[i].place.z))));
    }
    CHECK(isfinite(most), "a body is nowhere");
    return most;
}

static void move(void) {
    for (uint64_t i = 0; i < bodies; i++) {
        struct body *body = &all[i];
        body->speed = (struct vector){body->speed.x + STEP * body->force.x, body->speed.y + STEP * body->force.y,
                                      body->speed.z + STEP * body->force.z};
        body->place = (struct vector){body->place.x + STEP * body->speed.x, body->place.y + STEP * body->speed.y,
                                      body->place.z + STEP * body->speed.z};
    }
}

int main(int argc, char **argv) {
    struct argument list[] = {
        {"bodies", &bodies, 2, 10000000, "bodies"},
        {"steps", &steps, 1, 1000000, "steps of time"},
        {"threads", &threads, 1, THREADS_MAX, "threads that compute forces"},
        {"seed", &seed, 0, UINT64_MAX, "of the random numbers"},
    };
    PARSE(argc, argv, "barnes: gravity between bodies, by an octree", list);
    all = take_table(&cells, bodies, sizeof *all);
    place_bodies();
    uint64_t numbers[THREADS_MAX], built = 0;
    for (uint64_t i = 0; i < threads; i++) numbers[i] = i;
    for (uint64_t step = 0; step < steps; step++) {
        root = cell_new((struct vector){0, 0, 0}, widest() * 1.001);
        for (uint64_t i = 0; i < bodies; i++) insert(root, &all[i], 0);
        CHECK(weigh(root) == bodies && fabs(root->mass - 1) < 1e-9, "the tree lost bodies");
        run_threads(threads, compute, numbers, sizeof numbers[0]);
        move();
        built += root->count;
        if (step + 1 < steps) cell_free(root);
    }
    for (uint64_t i = 0; i < bodies; i++) built += (uint64_t)(int64_t)(all[i].place.x * 1e6);
    settle(&cells);
    before_drain();
    cell_free(root);
    give_table(&cells, all, bodies, sizeof *all);
    close_ledger(&cells, built);
    return finish("barnes", "");
}
