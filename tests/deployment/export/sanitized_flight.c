/* A flock of exported agents, for a build under sanitizers: it flies, and it receives damaged messages.

   HEADER is the exported file, NAME and UPPER its prefix in both cases, PERIOD the sampling period if the controller has
   a gain schedule or limits, LARGEST its largest acceleration if it has limits, PACKETS the packets per message if there are
   several, and OWN_FRAMES is defined if agents measure the frames of their neighbours. Agents, messages and vectors are
   allocated with their exact sizes, so that reading or writing beyond them is an error. Exit code 1 if an acceleration
   is not finite, or with limits if it is too large, whatever is measured and received. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include HEADER

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define D JOIN(UPPER, D)
#define MESSAGE JOIN(UPPER, MESSAGE)
#define NEIGHBOURS JOIN(UPPER, NEIGHBOURS)
#ifndef PACKETS
#define PACKETS 1
#endif
typedef JOIN(NAME, agent) agent_type;

static uint64_t state = 1;

static uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static float draw_float(float low, float high)
{
    return low + (high - low) * (float)(draw() % 65536u) / 65536.0f;
}

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL)
        exit(1);
    return memory;
}

/* Receive a copy whose memory ends where the message does. */
static int receive_copy(agent_type *agent, const uint8_t *message, size_t length)
{
    uint8_t *copy = allocate(length > 0 ? length : 1);
    int reason;
    memcpy(copy, message, length);
    reason = JOIN(NAME, receive)(agent, copy, length);
    free(copy);
    return reason;
}

static int damaged_count = 0;

/* Receive a packet in another frame: turned by a right angle, and by random numbers, with extreme offsets. */
static void receive_rotated_copy(agent_type *agent, const uint8_t *message)
{
#ifdef OWN_FRAMES
    const float values[] = {0.0f, 1.0f, -1.0f, 0.70710678f, 1e-45f, 1e38f, INFINITY, NAN};
    float *rotation = allocate(D * D * sizeof(float)), *offset = allocate(D * sizeof(float));
    int n;
    for (n = 0; n < D * D; n++)
        rotation[n] = n % (D + 1) == 0 ? 1.0f : 0.0f;
    for (n = 0; n < D; n++)
        offset[n] = values[draw() % 8u];
    rotation[0] = rotation[D + 1] = 0.0f;
    rotation[1] = 1.0f;
    rotation[D] = -1.0f;
    JOIN(NAME, receive_rotated)(agent, message, MESSAGE, rotation, draw() % 2u ? offset : NULL);
    for (n = 0; n < D * D; n++)
        rotation[n] = values[draw() % 8u];
    JOIN(NAME, receive_rotated)(agent, message, MESSAGE, rotation, NULL);
    JOIN(NAME, receive_rotated)(agent, message, MESSAGE, NULL, offset);
    free(rotation);
    free(offset);
#else
    (void)agent;
    (void)message;
#endif
}

/* Receive random bytes, a message of any length, a message with changed bytes, and one with extreme values. */
static void receive_damage(agent_type *agent, const uint8_t *valid)
{
    const float extremes[] = {0.0f, 1e-45f, 1e8f, -1e8f, 1e7f, -1e-20f, 0.1f, -0.1f};
    uint8_t damaged[MESSAGE + 8];
    size_t i, length = draw() % (MESSAGE + 8u);
    for (i = 0; i < sizeof damaged; i++)
        damaged[i] = (uint8_t)draw();
    receive_copy(agent, damaged, length);
    receive_copy(agent, damaged, MESSAGE);
    memcpy(damaged, valid, MESSAGE);
    receive_copy(agent, damaged, length < MESSAGE ? length : MESSAGE);
    for (i = 0; i < 1 + draw() % 4u; i++)
        damaged[draw() % MESSAGE] = (uint8_t)draw();
    receive_copy(agent, damaged, MESSAGE);
    memcpy(damaged, valid, MESSAGE);
    damaged[5] = (uint8_t)draw(); /* another sender */
    for (i = 12; i < MESSAGE; i += 4)
        if (draw() % 2u)
            memcpy(damaged + i, &extremes[draw() % 8u], 4);
    receive_copy(agent, damaged, MESSAGE);
    damaged_count += 4;
}

/* Return whether an acceleration is finite and, with limits, not too large. */
static int is_fine(const float *acceleration)
{
    double square = 0.0;
    int d;
    for (d = 0; d < D; d++)
        square += (double)acceleration[d] * (double)acceleration[d];
#ifdef LARGEST
    return square <= (double)LARGEST * (double)LARGEST * (1.0 + 2e-6);
#else
    return square < (double)INFINITY;
#endif
}

int main(void)
{
    enum { AGENTS = NEIGHBOURS + 4, STEPS = 12 };
    agent_type *agents[AGENTS];
    uint8_t *messages[AGENTS];
    float *positions[AGENTS], *velocities[AGENTS], *acceleration = allocate(D * sizeof(float));
    const float extremes[] = {0.0f, -0.0f, 1e-45f, 1e38f, -1e38f, INFINITY, NAN};
    int i, d, n, step, received = 0;
    for (i = 0; i < AGENTS; i++) {
        agents[i] = allocate(sizeof(agent_type));
        messages[i] = allocate(PACKETS * MESSAGE);
        positions[i] = allocate(D * sizeof(float));
        velocities[i] = allocate(D * sizeof(float));
#ifdef PERIOD
        JOIN(NAME, init)(agents[i], (uint32_t)i, (uint8_t)(i % 3), PERIOD);
#else
        JOIN(NAME, init)(agents[i], (uint32_t)i, (uint8_t)(i % 3));
#endif
        for (d = 0; d < D; d++) {
            positions[i][d] = draw_float(-0.7f, 0.7f);
            velocities[i][d] = draw_float(-3.0f, 3.0f);
        }
    }
    /* All send, all receive, all act; in the last steps one agent measures values that are extreme or none. */
    for (step = 0; step < STEPS; step++) {
        int is_extreme = step >= STEPS - 4;
        if (is_extreme)
            for (d = 0; d < D; d++) {
                positions[0][d] = extremes[draw() % 7u];
                velocities[0][d] = extremes[draw() % 7u];
            }
        for (i = 0; i < AGENTS; i++)
            JOIN(NAME, begin)(agents[i], positions[i], velocities[i], messages[i]);
        for (i = 0; i < AGENTS; i++) {
            for (n = 0; n < PACKETS * AGENTS; n++) {
                /* All first packets, all second packets, ..: of many messages at once. */
                const uint8_t *packet = messages[n % AGENTS] + n / AGENTS * MESSAGE;
                if (is_extreme)
                    receive_rotated_copy(agents[i], packet);
                received += receive_copy(agents[i], packet, MESSAGE) == 0;
                if (is_extreme)
                    receive_damage(agents[i], packet);
            }
            JOIN(NAME, end)(agents[i], acceleration);
            if (!is_fine(acceleration))
                return 1;
            for (d = 0; d < D; d++) {
                if (isfinite(acceleration[d]))
                    velocities[i][d] += 0.01f * fmaxf(fminf(acceleration[d], 20.0f), -20.0f);
                positions[i][d] += 0.01f * velocities[i][d];
            }
        }
    }
    for (i = 0; i < AGENTS; i++) {
        free(agents[i]);
        free(messages[i]);
        free(positions[i]);
        free(velocities[i]);
    }
    free(acceleration);
    printf("%d damaged messages, %d messages received\n", damaged_count, received);
    return received > 0 ? 0 : 1;
}
