/* @title@
 *
 * One agent of a flock: messages of others in, its own acceleration and message out. C99, float, no heap; it needs
 * nothing but libm. Written by equiflock @version@; @file@.README.md says what every byte of a message is.
 *
 *     static @name@_agent agent;
 *     @name@_init(&agent, number, group);               once; group 0 unless agents have groups
 *     at every step:
 *         @name@_begin(&agent, position, velocity, message);   then send the @size@ bytes of message
 *         @name@_hear(&agent, received, length);               for each message that comes before `end`
 *         @name@_end(&agent, acceleration);                    then do that
 *
@units@
 * Memory: an agent has @ram@ bytes with room for @NAME@_NEIGHBOURS = @neighbours@ neighbours, of @slot@ bytes each; on the
 * stack are @stack@ bytes of numbers; weights are @weights@ bytes of constants.
 */
#ifndef EQUIFLOCK_@NAME@_H
#define EQUIFLOCK_@NAME@_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define @NAME@_D @D@ /* dimensions */
#define @NAME@_K @K@ /* hops */
#define @NAME@_C @C@ /* channels of a hop */
#define @NAME@_PASSED @passed@ /* numbers of its observations that an agent passes on, (K - 1) C D */
#define @NAME@_MESSAGE @size@ /* bytes of a message */
#define @NAME@_OBSTACLE 255 /* in place of a group: the sender is an obstacle agent */

/* These three may be set before this file is included, or by the compiler's -D. */
#ifndef @NAME@_NEIGHBOURS
#define @NAME@_NEIGHBOURS @neighbours@ /* so many agents are heard at once; of more, the nearest */
#endif
#ifndef @NAME@_LAST_KNOWN
#define @NAME@_LAST_KNOWN 0 /* for so many steps more the last message of a silent neighbour is used */
#endif
#ifndef @NAME@_REACH
#define @NAME@_REACH 0.0f /* messages from farther than this are not used; 0: all that are heard are */
#endif

/* What `hear` makes of bytes: takes them, or drops them, and why. */
enum {
    @NAME@_HEARD = 0,
    @NAME@_WRONG_LENGTH,
    @NAME@_NO_MESSAGE,    /* it does not begin with EF */
    @NAME@_OTHER_VERSION, /* of the format */
    @NAME@_NO_NUMBER,     /* a number is not finite, or too large */
    @NAME@_OWN_NUMBER,    /* it says that it is from this agent itself */
    @NAME@_NOT_NEWER,     /* than the message of that sender that is here already */
    @NAME@_FULL,          /* NEIGHBOURS others were heard, none of them farther */
    @NAME@_STRANGER       /* not at the first step, in a fixed topology; or an obstacle agent in space */
};

/* The last message of another agent: position and velocity in the robots' units, then what it passed on. */
typedef struct {
    uint32_t sender, step, heard; /* `heard` is this agent's own step at which it came */
    uint32_t group;
    float numbers[2 * @NAME@_D + @NAME@_PASSED];
} @name@_neighbour;

typedef struct {
    uint32_t number, step, group;
    int32_t count; /* of neighbours, which are sorted by their numbers */
    float position[@NAME@_D], velocity[@NAME@_D];
    float known[@NAME@_K * @NAME@_C * @NAME@_D]; /* observations: hop by hop, channel by channel */
    @name@_neighbour neighbours[@NAME@_NEIGHBOURS];
/*[fixed*/
    int32_t listed; /* a fixed topology: so many were heard at the first step; -1 before it has ended */
    uint32_t friends[@NAME@_NEIGHBOURS]; /* who they are; nobody else is ever heard */
/*fixed]*/
} @name@_agent;

@constants@

/* Make an agent that knows nothing yet. */
static inline void @name@_init(@name@_agent *agent, uint32_t number, uint8_t group)
{
    int n;
    agent->number = number;
    agent->step = 0;
    agent->group = group;
    agent->count = 0;
    for (n = 0; n < @NAME@_D; n++)
        agent->position[n] = agent->velocity[n] = 0.0f;
    for (n = 0; n < @NAME@_K * @NAME@_C * @NAME@_D; n++)
        agent->known[n] = 0.0f;
/*[fixed*/
    agent->listed = -1;
/*fixed]*/
}

/* Four bytes, the lowest first, whatever the order in memory. */
static inline uint32_t @name@_get(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static inline void @name@_put(uint8_t *to, uint32_t value)
{
    int n;
    for (n = 0; n < 4; n++)
        to[n] = (uint8_t)(value >> (8 * n));
}

typedef union {
    float number;
    uint32_t bits;
} @name@_word;

/* Write a message. `known` is K - 1 hops of observations, or NULL for who hears nobody: a leader, or an obstacle agent
 * (group @NAME@_OBSTACLE), which a robot that sees an obstacle by itself may write and hear in its place. */
static inline void @name@_write(uint8_t message[@NAME@_MESSAGE], uint32_t sender, uint8_t group, uint32_t step,
                                const float position[@NAME@_D], const float velocity[@NAME@_D], const float *known)
{
    int n;
    message[0] = 'E';
    message[1] = 'F';
    message[2] = 1;
    message[3] = group;
    @name@_put(message + 4, sender);
    @name@_put(message + 8, step);
    for (n = 0; n < 2 * @NAME@_D + @NAME@_PASSED; n++) {
        @name@_word word;
        if (n < 2 * @NAME@_D)
            word.number = n < @NAME@_D ? position[n] : velocity[n - @NAME@_D];
        else
            word.number = known ? known[n - 2 * @NAME@_D] : 0.0f;
        @name@_put(message + 12 + 4 * n, word.bits);
    }
}

/* Begin a step: the message to send now, of where the agent is and of what it knew a step before. */
static inline void @name@_begin(@name@_agent *agent, const float position[@NAME@_D], const float velocity[@NAME@_D],
                                uint8_t message[@NAME@_MESSAGE])
{
    int d;
    for (d = 0; d < @NAME@_D; d++) {
        agent->position[d] = position[d];
        agent->velocity[d] = velocity[d];
    }
    @name@_write(message, agent->number, (uint8_t)agent->group, agent->step, position, velocity, agent->known);
}

/* The place of the farthest neighbour, if it is farther than the sender of a message; -1 if none is. */
static inline int @name@_farther_than(const @name@_agent *agent, const uint8_t *message)
{
    float most = 0.0f;
    int n, d, farthest = -1;
    for (d = 0; d < @NAME@_D; d++) {
        @name@_word word;
        word.bits = @name@_get(message + 12 + 4 * d);
        most += (agent->position[d] - word.number) * (agent->position[d] - word.number);
    }
    for (n = 0; n < agent->count; n++) {
        float square = 0.0f;
        for (d = 0; d < @NAME@_D; d++) {
            const float offset = agent->position[d] - agent->neighbours[n].numbers[d];
            square += offset * offset;
        }
        if (square > most) {
            most = square;
            farthest = n;
        }
    }
    return farthest;
}

/* Take in a message, at any time before `end`; @NAME@_HEARD, or why it was dropped. Any bytes will do no harm. */
static inline int @name@_hear(@name@_agent *agent, const uint8_t *message, size_t length)
{
    int n, at = 0;
    uint32_t sender, step;
    if (length != @NAME@_MESSAGE)
        return @NAME@_WRONG_LENGTH;
    if (message[0] != 'E' || message[1] != 'F')
        return @NAME@_NO_MESSAGE;
    if (message[2] != 1)
        return @NAME@_OTHER_VERSION;
    /* No number may be so large that its square, or the fourth power of a distance, leaves the range of float. */
    for (n = 0; n < 2 * @NAME@_D + @NAME@_PASSED; n++) {
        @name@_word word;
        word.bits = @name@_get(message + 12 + 4 * n);
        if (!(fabsf(word.number) <= (n < 2 * @NAME@_D ? 1e8f : 1e18f)))
            return @NAME@_NO_NUMBER;
    }
    sender = @name@_get(message + 4);
    step = @name@_get(message + 8);
    if (sender == agent->number)
        return @NAME@_OWN_NUMBER;
/*[space*/
    /* Obstacle agents exist in the plane only. */
    if (message[3] == @NAME@_OBSTACLE)
        return @NAME@_STRANGER;
/*space]*/
/*[fixed*/
    /* After the first step, only who was heard at it. */
    for (n = 0; n < agent->listed && agent->friends[n] != sender; n++)
        ;
    if (agent->listed >= 0 && n == agent->listed)
        return @NAME@_STRANGER;
/*fixed]*/
    /* Its place in the order of numbers, so that sums do not depend on who was heard first. */
    while (at < agent->count && agent->neighbours[at].sender < sender)
        at++;
    if (at < agent->count && agent->neighbours[at].sender == sender) {
        /* Steps are counted modulo 2^32. */
        if ((uint32_t)(step - agent->neighbours[at].step - 1u) >= 0x7fffffffu)
            return @NAME@_NOT_NEWER;
    } else {
        /* No room: the farthest gives its place to one who is nearer. */
        if (agent->count == @NAME@_NEIGHBOURS) {
            const int farthest = @name@_farther_than(agent, message);
            if (farthest < 0)
                return @NAME@_FULL;
            agent->count--;
            for (n = farthest; n < agent->count; n++)
                agent->neighbours[n] = agent->neighbours[n + 1];
            if (farthest < at)
                at--;
        }
        for (n = agent->count++; n > at; n--)
            agent->neighbours[n] = agent->neighbours[n - 1];
    }
    agent->neighbours[at].sender = sender;
    agent->neighbours[at].step = step;
    agent->neighbours[at].heard = agent->step;
    agent->neighbours[at].group = message[3];
    for (n = 0; n < 2 * @NAME@_D + @NAME@_PASSED; n++) {
        @name@_word word;
        word.bits = @name@_get(message + 12 + 4 * n);
        agent->neighbours[at].numbers[n] = word.number;
    }
    return @NAME@_HEARD;
}

/* r_ij and v_ij, in the units of the controller, and |r_ij|^2; -1 if it is out of range. */
static inline float @name@_relative(const @name@_agent *agent, const @name@_neighbour *other, float r[@NAME@_D],
                                    float v[@NAME@_D])
{
    float square = 0.0f;
    int d;
    for (d = 0; d < @NAME@_D; d++) {
        r[d] = agent->position[d] - other->numbers[d];
        v[d] = agent->velocity[d] - other->numbers[@NAME@_D + d];
        square += r[d] * r[d];
    }
    if (@NAME@_REACH > 0.0f && square > @NAME@_REACH * @NAME@_REACH)
        return -1.0f;
/*[scaled*/
    square = 0.0f;
    for (d = 0; d < @NAME@_D; d++) {
        r[d] *= @per_length@; /* 1 / L */
        v[d] *= @per_speed@; /* tau / L */
        square += r[d] * r[d];
    }
/*scaled]*/
    return square;
}

static inline void @name@_add(float *sum, float weight, const float vector[@NAME@_D])
{
    int d;
    for (d = 0; d < @NAME@_D; d++)
        sum[d] += weight * vector[d];
}

/*[orbit*/
/* v_ij of the nearest obstacle agent as a follower takes it (the orbit technique): from r_ij and w, the mean velocity of
 * itself and the flock agents that it hears. Who heads for the obstacle dodges it, who passes it bends around it. */
static inline void @name@_orbit(const float r[2], const float w[2], float v[2])
{
    const float distance = sqrtf(r[0] * r[0] + r[1] * r[1]), speed = sqrtf(w[0] * w[0] + w[1] * w[1]);
    const float size = @near@ * expf(-distance) + @slow@ * expf(-speed);
    float x, y, ahead = 0.0f, left = 0.0f, side;
    v[0] = v[1] = 0.0f;
    if (distance == 0.0f)
        return;
    x = -r[0] / distance; /* the way to it */
    y = -r[1] / distance;
    if (speed > 0.0f) {
        ahead = (x * w[0] + y * w[1]) / speed;
        left = (y * w[0] - x * w[1]) / speed;
    }
    if (@minus_break@ <= ahead && ahead <= 0.0f) {
        v[0] = -size * x;
        v[1] = -size * y;
        return;
    }
    side = left >= 0.0f ? size : -size;
    v[0] = side * (@cosine@ * x - @sine@ * y);
    v[1] = side * (@sine@ * x + @cosine@ * y);
}

/*orbit]*/
/* Features of r_ij and v_ij are added to sums, and what the others passed on to older hops. */
static inline int @name@_observe(@name@_agent *agent)
{
    float sums[@features@ * @NAME@_D], r[@NAME@_D], v[@NAME@_D], *known = agent->known;
    int i, n, heard = 0;
/*[mean_same*/
    int same = 0;
/*mean_same]*/
/*[mean_others*/
    int others = 0;
/*mean_others]*/
/*[plane*/
    /* Of obstacle agents only the nearest is heard. */
    int nearest = -1;
    float least = 0.0f;
/*[orbit*/
    float w[2] = {agent->velocity[0]@to_speed@, agent->velocity[1]@to_speed@};
    int flock = 1;
/*orbit]*/
    for (i = 0; i < agent->count; i++) {
        const float square = @name@_relative(agent, &agent->neighbours[i], r, v);
        if (square < 0.0f)
            continue;
        if (agent->neighbours[i].group == @NAME@_OBSTACLE) {
            if (nearest < 0 || square < least) {
                nearest = i;
                least = square;
            }
        }
/*[orbit*/
        else {
            w[0] += agent->neighbours[i].numbers[2]@to_speed@;
            w[1] += agent->neighbours[i].numbers[3]@to_speed@;
            flock++;
        }
/*orbit]*/
    }
/*[orbit*/
    w[0] /= (float)flock;
    w[1] /= (float)flock;
/*orbit]*/
/*plane]*/
    for (n = 0; n < @features@ * @NAME@_D; n++)
        sums[n] = 0.0f;
    for (n = 0; n < @NAME@_K * @NAME@_C * @NAME@_D; n++)
        known[n] = 0.0f;
    for (i = 0; i < agent->count; i++) {
        const @name@_neighbour *other = &agent->neighbours[i];
        float square = @name@_relative(agent, other, r, v);
        if (square < 0.0f)
            continue;
/*[plane*/
        if (other->group == @NAME@_OBSTACLE) {
            if (i != nearest)
                continue;
/*[orbit*/
            @name@_orbit(r, w, v);
/*orbit]*/
        }
/*plane]*/
        square = square < 1e-16f ? 1e-16f : square; /* agents in one place push each other nowhere */
@sums@
        heard++;
        for (n = 0; n < @NAME@_PASSED; n++)
            known[@NAME@_C * @NAME@_D + n] += other->numbers[2 * @NAME@_D + n];
    }
    /* Sums and means of the first hop, then means of the older ones. */
    {
        const float mean = heard > 0 ? 1.0f / (float)heard : 0.0f;
/*[mean_same*/
        const float mean_same = same > 0 ? 1.0f / (float)same : 0.0f;
/*mean_same]*/
/*[mean_others*/
        const float mean_others = others > 0 ? 1.0f / (float)others : 0.0f;
/*mean_others]*/
@channels@
        for (n = 0; n < @NAME@_PASSED; n++)
            known[@NAME@_C * @NAME@_D + n] *= mean;
    }
    /* Beyond this squares leave the range of float; agents at a touch get there. */
    for (n = 0; n < @NAME@_K * @NAME@_C * @NAME@_D; n++)
        known[n] = known[n] > 1e18f ? 1e18f : known[n] < -1e18f ? -1e18f : known[n];
    return heard;
}

/* y = weight x + bias, of vectors of so many components. */
static inline void @name@_layer(const float *weight, const float *bias, int outputs, int inputs, int components,
                                const float *x, float *y)
{
    int o, i, d;
    for (o = 0; o < outputs; o++)
        for (d = 0; d < components; d++) {
            float sum = bias ? bias[o] : 0.0f;
            for (i = 0; i < inputs; i++)
                sum += weight[o * inputs + i] * x[i * components + d];
            y[o * components + d] = sum;
        }
}

@activations@
/* End a step: what to do now, in the robots' units. How many others were heard; -1 if the answer, or what the robot
 * measured of itself, is not finite: the answer is zero then. */
static inline int @name@_end(@name@_agent *agent, float acceleration[@NAME@_D])
{
    int d, n, kept = 0, heard = @name@_observe(agent);
@network@
    for (d = 0; d < @NAME@_D; d++)
        if (!isfinite(acceleration[d]) || !isfinite(agent->position[d]) || !isfinite(agent->velocity[d]))
            heard = -1;
    for (d = 0; d < @NAME@_D && heard < 0; d++)
        acceleration[d] = 0.0f;
/*[fixed*/
    if (agent->listed < 0)
        for (agent->listed = 0; agent->listed < agent->count; agent->listed++)
            agent->friends[agent->listed] = agent->neighbours[agent->listed].sender;
/*fixed]*/
    agent->step++;
    /* Forget messages that were used for long enough. */
    for (n = 0; n < agent->count; n++)
        if ((uint32_t)(agent->step - agent->neighbours[n].heard) <= @NAME@_LAST_KNOWN)
            agent->neighbours[kept++] = agent->neighbours[n];
    agent->count = kept;
    return heard;
}

#endif
