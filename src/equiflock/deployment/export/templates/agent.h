/* @controller@: @D@ dimensions, @K@ hops of @C@ channels
 *
 * The controller of one agent of a flock: messages of neighbours in, the agent's acceleration and next message out.
 * C99, single precision, no heap; needs only libm. @file@.README.md documents the message.
 * Written by equiflock @version@.
 *
 *     static @name@_agent agent;
/*[no_period*/
 *     @name@_init(&agent, number, group);                      once; group 0 unless agents have groups
/*no_period]*/
/*[period*/
 *     @name@_init(&agent, number, group, period);              once; group 0 unless agents have groups
/*period]*/
/*[limits*/
/*[schedule*/
 *     @name@_set_delay(&agent, seconds);                       once, if messages usually arrive late
/*schedule]*/
/*limits]*/
 *     at every step:
/*[whole*/
 *         @name@_begin(&agent, position, velocity, message);   then send the @size@ bytes of message
 *         @name@_receive(&agent, received, length);            for each message that arrives before `end`
/*whole]*/
/*[split*/
 *         @name@_begin(&agent, position, velocity, message);   then send its @packets@ packets of @size@ bytes each
 *         @name@_receive(&agent, received, length);            for each packet that arrives before `end`
/*split]*/
/*[own_frames*/
 *         @name@_receive_rotated(&agent, received, length, rotation, offset);   instead, from a sender in another frame
/*own_frames]*/
/*[limits*/
 *         @name@_set_time(&agent, microseconds);               the robot's clock, if it has one
/*limits]*/
 *         @name@_end(&agent, acceleration);                    then apply the acceleration
 *
/*[unscaled*/
 * Positions, velocities and accelerations are in the controller's units.
/*unscaled]*/
/*[scaled*/
 * The controller's unit of length is @length@ of the robots' units, its second @time@ of their seconds.
/*scaled]*/
/*[plain_schedule*/
 * `period` sets the gain: the time between two steps, in seconds of the robot, plus the usual delay of messages.
/*plain_schedule]*/
/*[limits*/
 * Accelerations keep the limits below; `agent.state` says which of them changed the last one. `period` is the time
 * between two steps, in seconds of the robot.
/*[schedule*/
 * It sets the gain, too, together with the usual delay of messages.
/*schedule]*/
/*limits]*/
/*[longest_period*/
 * Its training had periods of up to @NAME@_LONGEST_PERIOD; at longer ones the flock may oscillate.
/*longest_period]*/
/*[compact*/
 * Positions are sent modulo @window@, velocities modulo @speed_window@. A neighbour must be nearer than @reach@ and slower than
 * @speed_reach@ relative to the agent, in every component: what a radio carries from farther away appears at another place,
 * which @NAME@_RANGE cannot detect. Numbers of agents are at most 65535.
/*compact]*/
 * Memory: @ram@ bytes of RAM per agent with @NAME@_NEIGHBOURS = @neighbours@ (@slot@ bytes per neighbour),
 * @stack@ bytes of numbers on the stack, @weights@ bytes of constant weights.
 */
#ifndef EQUIFLOCK_@NAME@_H
#define EQUIFLOCK_@NAME@_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define @NAME@_D @D@ /* dimensions */
#define @NAME@_K @K@ /* hops */
#define @NAME@_C @C@ /* channels per hop */
/*[float32*/
#define @NAME@_RELAYED @relayed@ /* observation values relayed in a message, (K - 1) C D */
#define @NAME@_MESSAGE @size@ /* bytes per message */
/*float32]*/
/*[compact*/
#define @NAME@_RELAYED @relayed@ /* observation values relayed in a message, @relayed_hops@ C D */
#define @NAME@_PACKETS @packets@ /* packets per message */
#define @NAME@_MESSAGE @size@ /* bytes per packet */
#define @NAME@_LAYOUT @layout@ /* byte 9 of a packet; differs if agents have other units or channels */
/*compact]*/
/*[own_frames*/
#define @NAME@_OWN_FRAMES 1 /* @name@_receive_rotated exists */
/*own_frames]*/
/*[decoded*/
#define @NAME@_VECTORS @vectors@ /* vectors in a packet, the position included */
/*decoded]*/
#define @NAME@_OBSTACLE 255 /* group of obstacle agents */
/*[schedule*/
#define @NAME@_GAIN_PERIOD @gain_period@ /* period at which the gain is 1, in seconds */
#define @NAME@_LARGEST_GAIN @largest_gain@ /* gain is min(LARGEST_GAIN, GAIN_PERIOD / period) */
/*schedule]*/
/*[longest_period*/
#define @NAME@_LONGEST_PERIOD @longest_period@ /* longest period of the training, in seconds */
/*longest_period]*/

/* Define these three before including this file, or with -D, to override the defaults. */
#ifndef @NAME@_NEIGHBOURS
#define @NAME@_NEIGHBOURS @neighbours@ /* most neighbours stored; the nearest are kept */
#endif
#ifndef @NAME@_LAST_KNOWN
#define @NAME@_LAST_KNOWN 0 /* extra steps for which the last message of a silent neighbour is used */
#endif
#ifndef @NAME@_RANGE
#define @NAME@_RANGE 0.0f /* messages from farther away are ignored; 0: no limit */
#endif
/*[limits*/

/* Limits in the robots' units and seconds. Define them before including this file, or with -D, to override them. */
#ifndef @NAME@_MAX_ACCELERATION
#define @NAME@_MAX_ACCELERATION @max_acceleration@
#endif
#ifndef @NAME@_MAX_SPEED
#define @NAME@_MAX_SPEED @max_speed@ /* 0: no limit */
#endif
#ifndef @NAME@_MIN_SEPARATION
#define @NAME@_MIN_SEPARATION @min_separation@ /* nearer neighbours are evaded; 0: none */
#endif
/* Microseconds without a neighbour's message after which the agent brakes; 0: never. Define MAX_SILENCE instead to
 * override them in seconds, which are rounded to float. */
#ifndef @NAME@_MAX_SILENCE_US
#ifdef @NAME@_MAX_SILENCE
#define @NAME@_MAX_SILENCE_US ((uint32_t)(fminf(@NAME@_MAX_SILENCE, 4000.0f) * 1e6f + 0.5f))
#else
#define @NAME@_MAX_SILENCE_US @max_silence_us@u
#endif
#endif
#ifndef @NAME@_BRAKING_TIME
#define @NAME@_BRAKING_TIME @braking_time@ /* in which limits correct a velocity; 0: four periods, at least one */
#endif
/*[fence*/
#ifndef @NAME@_FENCE_LOWER
#define @NAME@_FENCE_LOWER @fence_lower@ /* lower corner of the box in which the agent stays */
#endif
#ifndef @NAME@_FENCE_UPPER
#define @NAME@_FENCE_UPPER @fence_upper@ /* upper corner */
#endif
/*fence]*/
/*[no_fence*/
/* For a fence, define @NAME@_FENCE_LOWER and @NAME@_FENCE_UPPER, its corners in braces. */
/*no_fence]*/

/* `state` of an agent: the most severe limit that changed the last acceleration, in increasing severity. */
enum {
    @NAME@_OK = 0,
    @NAME@_ALONE,     /* no message of a neighbour is in use; those of obstacle agents do not count */
    @NAME@_LIMITED,   /* MAX_SPEED or MAX_ACCELERATION */
    @NAME@_TOO_CLOSE, /* MIN_SEPARATION */
    @NAME@_FENCE,
    @NAME@_STALE, /* MAX_SILENCE_US */
    @NAME@_INVALID /* `end` returned -1 */
};
/*limits]*/

/* Result of `receive`: RECEIVED, or why the message was dropped. */
enum {
    @NAME@_RECEIVED = 0,
    @NAME@_WRONG_LENGTH,
    @NAME@_BAD_MAGIC,     /* does not begin with EF */
    @NAME@_OTHER_VERSION, /* version of the message format is not @format_version@ */
    @NAME@_BAD_VALUE,     /* a value is not finite or too large */
    @NAME@_OWN_NUMBER,    /* sender has this agent's own number */
    @NAME@_NOT_NEWER,     /* not newer than the stored message of its sender */
    @NAME@_FULL,          /* NEIGHBOURS messages are stored, none from farther away */
/*[plain*/
    @NAME@_NOT_A_NEIGHBOUR /* fixed topology: no neighbour at the first step; 3D: an obstacle agent */
/*plain]*/
/*[decoded*/
    @NAME@_NOT_A_NEIGHBOUR, /* fixed topology: no neighbour at the first step; 3D: an obstacle agent */
    @NAME@_OTHER_LAYOUT,    /* sizes, channels or units of the message are not those of this agent */
    @NAME@_BAD_FRAME,       /* rotation is not orthogonal, or offset not finite or too large */
    @NAME@_NO_STATE         /* this agent has no valid state of its own, to which a message is relative */
/*decoded]*/
};

/* The last message of a neighbour. `numbers`: position and velocity in the robots' units, then relayed observations. */
typedef struct {
    uint32_t sender, step, received_step; /* `received_step` counts this agent's steps, `step` the sender's */
    uint32_t group;
    float numbers[2 * @NAME@_D + @NAME@_RELAYED];
/*[split*/
    uint32_t packet_step; /* this agent's step at the last packet; `received_step` is that of the last complete message */
    uint16_t is_complete, arrived; /* whether `numbers` are valid; packets of `step` that have arrived, as bits */
    float arriving[2 * @NAME@_D + @NAME@_RELAYED]; /* numbers of these packets */
/*split]*/
} @name@_neighbour;

typedef struct {
    uint32_t number, step, group;
    int32_t count; /* number of stored neighbours, sorted by sender */
/*[schedule*/
    float gain; /* factor on accelerations; 0 if the period is invalid */
/*schedule]*/
/*[limits*/
    float period;        /* time between two steps, in seconds; 0 if it is invalid */
    int32_t state;       /* @NAME@_OK or why the last acceleration was changed */
    uint32_t late_count; /* steps that ended later than 1.5 periods after the one before, by `set_time` */
    uint32_t silence;    /* microseconds for which no message of a neighbour was in use */
    uint32_t time, end_time; /* microseconds: of `set_time`, and those of the last step */
    uint8_t has_time, had_time, has_ended, unused; /* whether `set_time` was called at this step and the last one */
/*limits]*/
    float position[@NAME@_D], velocity[@NAME@_D];
    float observations[@NAME@_K * @NAME@_C * @NAME@_D]; /* (K, C, D) */
    @name@_neighbour neighbours[@NAME@_NEIGHBOURS];
/*[fixed*/
    int32_t initial_count; /* fixed topology: number of neighbours at the first step; -1 until it has ended */
    uint32_t initial_neighbours[@NAME@_NEIGHBOURS]; /* their numbers; messages of other senders are dropped */
/*fixed]*/
} @name@_agent;

@constants@

/*[no_period*/
/* Initialise an agent: step 0, no neighbours, observations zero. */
static inline void @name@_init(@name@_agent *agent, uint32_t number, uint8_t group)
/*no_period]*/
/*[plain_schedule*/
/* Initialise an agent: step 0, no neighbours, observations zero. `period` is the time between two steps plus the delay
 * of messages; if it is not positive and finite, `end` returns -1 and a zero acceleration at every step. */
static inline void @name@_init(@name@_agent *agent, uint32_t number, uint8_t group, float period)
/*plain_schedule]*/
/*[limits*/
/* Initialise an agent: step 0, no neighbours, observations zero. `period` is the time between two steps; if it is not
 * positive and finite, `end` returns -1 and a zero acceleration at every step. */
static inline void @name@_init(@name@_agent *agent, uint32_t number, uint8_t group, float period)
/*limits]*/
{
    int n;
/*[schedule*/
    agent->gain = 0.0f;
    if (period > 0.0f && isfinite(period))
        agent->gain = fminf(@NAME@_LARGEST_GAIN, @NAME@_GAIN_PERIOD / period);
/*schedule]*/
/*[limits*/
    agent->period = period > 0.0f && isfinite(period) ? period : 0.0f;
    agent->state = @NAME@_ALONE;
    agent->late_count = agent->silence = agent->time = agent->end_time = 0;
    agent->has_time = agent->had_time = agent->has_ended = agent->unused = 0;
/*limits]*/
    agent->number = number;
    agent->step = 0;
    agent->group = group;
    agent->count = 0;
    for (n = 0; n < @NAME@_D; n++)
        agent->position[n] = agent->velocity[n] = @initial_state@;
    for (n = 0; n < @NAME@_K * @NAME@_C * @NAME@_D; n++)
        agent->observations[n] = 0.0f;
/*[fixed*/
    agent->initial_count = -1;
/*fixed]*/
}

/*[float32*/
/* Read a little-endian uint32 on hosts of any byte order. */
static inline uint32_t @name@_get(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* Write a little-endian uint32. */
static inline void @name@_put(uint8_t *to, uint32_t value)
{
    int n;
    for (n = 0; n < 4; n++)
        to[n] = (uint8_t)(value >> (8 * n));
}

/*float32]*/
/*[compact*/
/* Read a little-endian uint16 on hosts of any byte order. */
static inline uint16_t @name@_get(const uint8_t *from)
{
    return (uint16_t)(from[0] | from[1] << 8);
}

/* Write a little-endian uint16. */
static inline void @name@_put(uint8_t *to, uint16_t value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
}

/*compact]*/
typedef union {
    float number;
    uint32_t bits;
} @name@_word;

/*[compact*/
/* Round to the nearest float16, ties to even; at most 65504 in absolute value. */
static inline uint16_t @name@_to_half(float value)
{
    @name@_word word;
    uint32_t sign;
    word.number = value;
    sign = word.bits >> 16 & 0x8000u;
    word.bits &= 0x7fffffffu;
    if (word.bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u); /* NaN */
    if (word.bits > 0x477fe000u)
        return (uint16_t)(sign | 0x7bffu);
    if (word.bits < 0x38800000u) /* subnormal: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)rintf(word.number * 16777216.0f));
    return (uint16_t)(sign | (word.bits - 0x38000000u + 0xfffu + (word.bits >> 13 & 1u)) >> 13);
}

/* Return the value of a float16. */
static inline float @name@_from_half(uint16_t half)
{
    const uint32_t exponent = half >> 10 & 31u, fraction = half & 1023u;
    @name@_word word;
    word.number = (float)fraction / 16777216.0f;
    if (exponent > 0)
        word.bits = (exponent == 31 ? 255u : exponent + 112u) << 23 | fraction << 13;
    return half >> 15 ? -word.number : word.number;
}

/* Return the nearest multiple of a quantum, modulo 2^16, of a finite number. */
static inline uint16_t @name@_quantize(float value, float per_quantum)
{
    return (uint16_t)(int32_t)fmodf(rintf(value * per_quantum), 65536.0f);
}

/* Return the multiple of the quantum that is nearest to `own` and `word` modulo 2^16. */
static inline float @name@_dequantize(uint16_t word, float own, float quantum, float per_quantum)
{
    const int32_t ahead = (uint16_t)(word - @name@_quantize(own, per_quantum));
    return quantum * (rintf(own * per_quantum) + (float)(ahead < 32768 ? ahead : ahead - 65536));
}

/*compact]*/
/*[decoded*/
/* Return whether a state is finite and not too large. */
static inline int @name@_is_valid(const float position[@NAME@_D], const float velocity[@NAME@_D])
{
    int d, is_valid = 1;
    for (d = 0; d < @NAME@_D; d++)
        is_valid &= fabsf(position[d]) <= 1e8f && fabsf(velocity[d]) <= 1e8f;
    return is_valid;
}

/*decoded]*/
/*[float32*/
/* Write a message. `observations` has the first K - 1 hops, or is NULL (zeros) for leaders and obstacle agents. A robot
 * that detects an obstacle with its sensors can write the obstacle agent's message (group @NAME@_OBSTACLE) and
 * pass it to `receive`. */
static inline void @name@_write(uint8_t message[@NAME@_MESSAGE], uint32_t sender, uint8_t group, uint32_t step,
                                const float position[@NAME@_D], const float velocity[@NAME@_D],
                                const float *observations)
{
    int n;
    message[0] = 'E';
    message[1] = 'F';
    message[2] = 1;
    message[3] = group;
    @name@_put(message + 4, sender);
    @name@_put(message + 8, step);
    for (n = 0; n < 2 * @NAME@_D + @NAME@_RELAYED; n++) {
        @name@_word word;
        if (n < 2 * @NAME@_D)
            word.number = n < @NAME@_D ? position[n] : velocity[n - @NAME@_D];
        else
            word.number = observations ? observations[n - 2 * @NAME@_D] : 0.0f;
        @name@_put(message + 12 + 4 * n, word.bits);
    }
}
/*float32]*/
/*[compact*/
/* Write a message: @NAME@_PACKETS packets of @NAME@_MESSAGE bytes, one after the other. Each has the position and its part
 * of the other vectors. `observations` has the first hops, or is NULL (zeros) for leaders and obstacle agents. A robot
 * that detects an obstacle with its sensors can write the obstacle agent's message (group @NAME@_OBSTACLE) and
 * pass its packets to `receive`. */
static inline void @name@_write(uint8_t message[@message_bytes@], uint32_t sender, uint8_t group, uint32_t step,
                                const float position[@NAME@_D], const float velocity[@NAME@_D],
                                const float *observations)
{
    const int is_valid = @name@_is_valid(position, velocity);
    int packet, n;
    for (packet = 0; packet < @NAME@_PACKETS; packet++, message += @NAME@_MESSAGE) {
        message[0] = 'E';
        message[1] = 'F';
        message[2] = 2;
        message[3] = group;
        @name@_put(message + 4, (uint16_t)sender);
        @name@_put(message + 6, (uint16_t)step);
        message[8] = is_valid ? (uint8_t)(16 * packet + @NAME@_PACKETS) : 0;
        message[9] = @NAME@_LAYOUT;
        for (n = 0; n < @NAME@_VECTORS * @NAME@_D; n++) {
            const int number = n < @NAME@_D ? n : n + packet * (@NAME@_VECTORS - 1) * @NAME@_D;
            uint16_t word = 0;
            if (number < @NAME@_D)
                word = is_valid ? @name@_quantize(position[number], @per_quantum@) : 0;
            else if (number < 2 * @NAME@_D)
                word = is_valid ? @name@_quantize(velocity[number - @NAME@_D], @per_speed_quantum@) : 0;
            else if (observations && number < 2 * @NAME@_D + @NAME@_RELAYED)
                word = @name@_to_half(observations[number - 2 * @NAME@_D]);
            @name@_put(message + 10 + 2 * n, word);
        }
    }
}
/*compact]*/

/* Begin a step: store the measured state and write the message to send, with the observations of the previous step. */
static inline void @name@_begin(@name@_agent *agent, const float position[@NAME@_D], const float velocity[@NAME@_D],
                                uint8_t message[@message_bytes@])
{
    int d;
    for (d = 0; d < @NAME@_D; d++) {
        agent->position[d] = position[d];
        agent->velocity[d] = velocity[d];
    }
    @name@_write(message, agent->number, (uint8_t)agent->group, agent->step, position, velocity, agent->observations);
}

/*[own_frames*/
/* result = rotation vector; a rotation of NULL is the identity */
static inline void @name@_rotate(const float *rotation, const float vector[@NAME@_D], float result[@NAME@_D])
{
    int d, e;
    for (d = 0; d < @NAME@_D; d++) {
        result[d] = rotation ? 0.0f : vector[d];
        for (e = 0; e < @NAME@_D && rotation; e++)
            result[d] += rotation[d * @NAME@_D + e] * vector[e];
    }
}

/* Return whether a rotation, if there is one, is orthogonal, and an offset, if there is one, finite and not too large.
 * Compute the inverse of the rotation, its transpose. */
static inline int @name@_invert(const float *rotation, const float *offset, float inverse[@NAME@_D * @NAME@_D])
{
    int d, e, n, is_valid = 1;
    for (d = 0; d < @NAME@_D; d++) {
        is_valid &= !offset || fabsf(offset[d]) <= 1e8f;
        for (e = 0; e < @NAME@_D && rotation; e++) {
            float product = d == e ? -1.0f : 0.0f;
            for (n = 0; n < @NAME@_D; n++)
                product += rotation[d * @NAME@_D + n] * rotation[e * @NAME@_D + n];
            is_valid &= fabsf(product) <= 1e-3f;
            inverse[d * @NAME@_D + e] = rotation[e * @NAME@_D + d];
        }
    }
    return is_valid;
}

/*own_frames]*/
/*[decoded*/
/* Decode the vectors of a message: position, velocity, relayed observations. Return RECEIVED or why it is invalid. */
/*[own_frames*/
static inline int @name@_decode(const @name@_agent *agent, const uint8_t *message, const float *rotation,
                                const float *offset, float numbers[@NAME@_VECTORS * @NAME@_D])
/*own_frames]*/
/*[shared_frame*/
static inline int @name@_decode(const @name@_agent *agent, const uint8_t *message,
                                float numbers[@NAME@_VECTORS * @NAME@_D])
/*shared_frame]*/
{
    int n, d;
/*[own_frames*/
    float to_sender[@NAME@_D * @NAME@_D];
    if (!@name@_invert(rotation, offset, to_sender))
        return @NAME@_BAD_FRAME;
/*own_frames]*/
    if (!@name@_is_valid(agent->position, agent->velocity))
        return @NAME@_NO_STATE;
    for (n = 0; n < @NAME@_VECTORS; n++) {
/*[float32*/
        const float limit = n < 2 ? 1e8f : 1e18f;
        float vector[@NAME@_D];
        for (d = 0; d < @NAME@_D; d++) {
            @name@_word word;
            word.bits = @name@_get(message + 12 + 4 * (n * @NAME@_D + d));
            vector[d] = word.number;
            if (!(fabsf(vector[d]) <= limit))
                return @NAME@_BAD_VALUE;
        }
/*float32]*/
/*[compact*/
        const int is_position = n == 0, is_velocity = n == 1 && message[8] < 16;
        const float *own = is_position ? agent->position : agent->velocity;
/*[shared_frame*/
        float *vector = numbers + n * @NAME@_D;
/*shared_frame]*/
/*[own_frames*/
        float vector[@NAME@_D], own_at_sender[@NAME@_D];
        @name@_rotate(rotation ? to_sender : NULL, own, own_at_sender);
        own = own_at_sender;
/*own_frames]*/
        for (d = 0; d < @NAME@_D; d++) {
            const uint16_t word = @name@_get(message + 10 + 2 * (n * @NAME@_D + d));
            if (is_position)
                vector[d] = @name@_dequantize(word, own[d], @quantum@, @per_quantum@);
            else if (is_velocity)
                vector[d] = @name@_dequantize(word, own[d], @speed_quantum@, @per_speed_quantum@);
            else
                vector[d] = @name@_from_half(word);
            if (!isfinite(vector[d]))
                return @NAME@_BAD_VALUE;
        }
/*compact]*/
/*[own_frames*/
        @name@_rotate(rotation, vector, numbers + n * @NAME@_D);
        for (d = 0; d < @NAME@_D && n == 0 && offset; d++)
            numbers[d] = agent->position[d] + offset[d];
/*own_frames]*/
    }
    return @NAME@_RECEIVED;
}

/*decoded]*/
/* Return the index of the farthest stored neighbour if it is farther away than the sender of the message, else -1. */
/*[plain*/
static inline int @name@_find_farther(const @name@_agent *agent, const uint8_t *message)
/*plain]*/
/*[decoded*/
static inline int @name@_find_farther(const @name@_agent *agent, const float position[@NAME@_D])
/*decoded]*/
{
    float most = 0.0f;
    int n, d, farthest = -1;
/*[plain*/
    for (d = 0; d < @NAME@_D; d++) {
        @name@_word word;
        word.bits = @name@_get(message + 12 + 4 * d);
        most += (agent->position[d] - word.number) * (agent->position[d] - word.number);
    }
/*plain]*/
/*[decoded*/
    for (d = 0; d < @NAME@_D; d++)
        most += (agent->position[d] - position[d]) * (agent->position[d] - position[d]);
/*decoded]*/
    for (n = 0; n < agent->count; n++) {
        float square = 0.0f;
        for (d = 0; d < @NAME@_D; d++) {
            const float offset = agent->position[d] - agent->neighbours[n].@newest_numbers@[d];
            square += offset * offset;
        }
        if (square > most) {
            most = square;
            farthest = n;
        }
    }
    return farthest;
}

/*[split*/
/* Add a packet to the message that arrives from a neighbour; a packet of a newer step discards those of older ones.
 * When all packets of a step have arrived, the message replaces the last complete one, which is used until then, but for
 * at most LAST_KNOWN extra steps. Packets that lack others wait for them for as many steps after the newest packet. */
static inline void @name@_assemble(@name@_agent *agent, @name@_neighbour *other, const uint8_t *message,
                                   const float numbers[@NAME@_VECTORS * @NAME@_D])
{
    const int packet = message[8] >> 4;
    int n;
    if (other->step != @name@_get(message + 6))
        other->arrived = 0;
    other->step = @name@_get(message + 6);
    other->arrived = (uint16_t)(other->arrived | 1u << packet);
    other->packet_step = agent->step;
    for (n = 0; n < @NAME@_VECTORS * @NAME@_D; n++) {
        const int number = n < @NAME@_D ? n : n + packet * (@NAME@_VECTORS - 1) * @NAME@_D;
        if (number < 2 * @NAME@_D + @NAME@_RELAYED)
            other->arriving[number] = numbers[n];
    }
    if (other->arrived != (1u << @NAME@_PACKETS) - 1u)
        return;
    other->is_complete = 1;
    other->received_step = agent->step;
    other->group = message[3];
    for (n = 0; n < 2 * @NAME@_D + @NAME@_RELAYED; n++)
        other->numbers[n] = other->arriving[n];
}

/*split]*/
/*[shared_frame*/
/* Store a @message@, at any time before `end`. Return @NAME@_RECEIVED or why it was dropped. Safe for arbitrary bytes. */
static inline int @name@_receive(@name@_agent *agent, const uint8_t *message, size_t length)
/*shared_frame]*/
/*[own_frames*/
/* Store a @message@, at any time before `end`, from a sender with a frame of its own. `rotation` (D x D, row by row, or
 * NULL) turns vectors of its frame into the agent's. `offset` is its position relative to the agent, as measured by the
 * agent, or NULL if both frames have the same origin. Return @NAME@_RECEIVED or why the @message@ was dropped. Safe for
 * arbitrary bytes. */
static inline int @name@_receive_rotated(@name@_agent *agent, const uint8_t *message, size_t length,
                                         const float *rotation, const float *offset)
/*own_frames]*/
{
    int n, at = 0;
    uint32_t sender, step;
/*[decoded*/
    float numbers[@NAME@_VECTORS * @NAME@_D];
/*decoded]*/
    if (length != @NAME@_MESSAGE)
        return @NAME@_WRONG_LENGTH;
    if (message[0] != 'E' || message[1] != 'F')
        return @NAME@_BAD_MAGIC;
    if (message[2] != @format_version@)
        return @NAME@_OTHER_VERSION;
/*[compact*/
    if (message[9] != @NAME@_LAYOUT)
        return @NAME@_OTHER_LAYOUT;
    if ((message[8] & 15) != @NAME@_PACKETS || message[8] >> 4 >= @NAME@_PACKETS)
        return @NAME@_BAD_VALUE;
/*compact]*/
/*[plain*/
    /* Limits keep the squares of values and the fourth powers of distances within the range of float. */
    for (n = 0; n < 2 * @NAME@_D + @NAME@_RELAYED; n++) {
        @name@_word word;
        word.bits = @name@_get(message + 12 + 4 * n);
        if (!(fabsf(word.number) <= (n < 2 * @NAME@_D ? 1e8f : 1e18f)))
            return @NAME@_BAD_VALUE;
    }
/*plain]*/
    sender = @name@_get(message + 4);
    step = @name@_get(message + @step_offset@);
    if (sender == @own_number@)
        return @NAME@_OWN_NUMBER;
/*[space*/
    /* Obstacle agents exist in 2D only. */
    if (message[3] == @NAME@_OBSTACLE)
        return @NAME@_NOT_A_NEIGHBOUR;
/*space]*/
/*[fixed*/
    /* After the first step accept only the neighbours of the first step. */
    for (n = 0; n < agent->initial_count && agent->initial_neighbours[n] != sender; n++)
        ;
    if (agent->initial_count >= 0 && n == agent->initial_count)
        return @NAME@_NOT_A_NEIGHBOUR;
/*fixed]*/
/*[decoded*/
/*[shared_frame*/
    n = @name@_decode(agent, message, numbers);
/*shared_frame]*/
/*[own_frames*/
    n = @name@_decode(agent, message, rotation, offset, numbers);
/*own_frames]*/
    if (n != @NAME@_RECEIVED)
        return n;
/*decoded]*/
    /* Insert in order of sender, so that sums do not depend on the order of arrival. */
    while (at < agent->count && agent->neighbours[at].sender < sender)
        at++;
    if (at < agent->count && agent->neighbours[at].sender == sender) {
        /* Steps are counted modulo 2^@step_bits@. */
/*[whole*/
        if ((uint@step_bits@_t)(step - agent->neighbours[at].step - 1u) >= 0x@largest_age@u)
            return @NAME@_NOT_NEWER;
/*whole]*/
/*[split*/
        const uint16_t age = (uint16_t)(step - agent->neighbours[at].step);
        if (age > 0x7fff || (age == 0 && (agent->neighbours[at].arrived >> (message[8] >> 4) & 1u)))
            return @NAME@_NOT_NEWER;
/*split]*/
    } else {
        /* No room: replace the farthest neighbour if the sender is nearer. */
        if (agent->count == @NAME@_NEIGHBOURS) {
            const int farthest = @name@_find_farther(agent, @position@);
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
/*[split*/
        agent->neighbours[at].sender = sender;
        agent->neighbours[at].step = step;
        agent->neighbours[at].received_step = agent->step;
        agent->neighbours[at].group = message[3];
        agent->neighbours[at].is_complete = agent->neighbours[at].arrived = 0;
/*split]*/
    }
/*[whole*/
    agent->neighbours[at].sender = sender;
    agent->neighbours[at].step = step;
    agent->neighbours[at].received_step = agent->step;
    agent->neighbours[at].group = message[3];
/*[plain*/
    for (n = 0; n < 2 * @NAME@_D + @NAME@_RELAYED; n++) {
        @name@_word word;
        word.bits = @name@_get(message + 12 + 4 * n);
        agent->neighbours[at].numbers[n] = word.number;
    }
/*plain]*/
/*[decoded*/
    for (n = 0; n < 2 * @NAME@_D + @NAME@_RELAYED; n++)
        agent->neighbours[at].numbers[n] = numbers[n];
/*decoded]*/
/*whole]*/
/*[split*/
    @name@_assemble(agent, &agent->neighbours[at], message, numbers);
/*split]*/
    return @NAME@_RECEIVED;
}

/*[own_frames*/
/* Store a @message@ from a sender with the agent's frame, as above. */
static inline int @name@_receive(@name@_agent *agent, const uint8_t *message, size_t length)
{
    return @name@_receive_rotated(agent, message, length, NULL, NULL);
}

/*own_frames]*/
/*[whole*/
/* Compute r_ij and v_ij in the controller's units. Return |r_ij|^2, or -1 if the neighbour is out of range. */
/*whole]*/
/*[split*/
/* Compute r_ij and v_ij in the controller's units. Return |r_ij|^2, or -1 if the neighbour is out of range or none of
 * its messages is complete. */
/*split]*/
static inline float @name@_relative(const @name@_agent *agent, const @name@_neighbour *other, float r[@NAME@_D],
                                    float v[@NAME@_D])
{
    float square = 0.0f;
    int d;
/*[split*/
    if (!other->is_complete)
        return -1.0f;
/*split]*/
    for (d = 0; d < @NAME@_D; d++) {
        r[d] = agent->position[d] - other->numbers[d];
        v[d] = agent->velocity[d] - other->numbers[@NAME@_D + d];
        square += r[d] * r[d];
    }
    if (@NAME@_RANGE > 0.0f && square > @NAME@_RANGE * @NAME@_RANGE)
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

/* sum += weight * vector */
static inline void @name@_add(float *sum, float weight, const float vector[@NAME@_D])
{
    int d;
    for (d = 0; d < @NAME@_D; d++)
        sum[d] += weight * vector[d];
}

/*[orbit*/
/* Orbit technique: compute the virtual v_ij of the nearest obstacle agent from r_ij and w, the mean velocity of the
 * agent and its neighbours in the flock. An agent that heads for the obstacle dodges it; one that passes it bends
 * around it. */
static inline void @name@_orbit(const float r[2], const float w[2], float v[2])
{
    const float distance = sqrtf(r[0] * r[0] + r[1] * r[1]), speed = sqrtf(w[0] * w[0] + w[1] * w[1]);
    const float size = @near@ * expf(-distance) + @slow@ * expf(-speed);
    float x, y, ahead = 0.0f, left = 0.0f, side;
    v[0] = v[1] = 0.0f;
    if (distance == 0.0f)
        return;
    x = -r[0] / distance; /* direction to the obstacle */
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
/* Compute observations (K, C, D): features of r_ij and v_ij in hop 1, means of relayed observations in older hops.
 * Return the number of neighbours used. */
static inline int @name@_observe(@name@_agent *agent)
{
    float sums[@features@ * @NAME@_D], r[@NAME@_D], v[@NAME@_D], *observations = agent->observations;
    int i, n, used = 0;
/*[mean_same*/
    int same = 0;
/*mean_same]*/
/*[mean_others*/
    int others = 0;
/*mean_others]*/
/*[plane*/
    /* Find the nearest obstacle agent: the others are ignored. */
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
        observations[n] = 0.0f;
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
        square = square < 1e-16f ? 1e-16f : square; /* coincident agents: features of r_ij are zero */
@sums@
        used++;
        for (n = 0; n < @NAME@_RELAYED; n++)
            observations[@NAME@_C * @NAME@_D + n] += other->numbers[2 * @NAME@_D + n];
    }
    /* Hop 1: sums or means of features. Older hops: means of relayed observations. */
    {
        const float mean = used > 0 ? 1.0f / (float)used : 0.0f;
/*[mean_same*/
        const float mean_same = same > 0 ? 1.0f / (float)same : 0.0f;
/*mean_same]*/
/*[mean_others*/
        const float mean_others = others > 0 ? 1.0f / (float)others : 0.0f;
/*mean_others]*/
@channels@
        for (n = 0; n < @NAME@_RELAYED; n++)
            observations[@NAME@_C * @NAME@_D + n] *= mean;
    }
    /* Squares of larger values would leave the range of float; agents that nearly coincide reach the limit. */
    for (n = 0; n < @NAME@_K * @NAME@_C * @NAME@_D; n++)
        observations[n] = observations[n] > 1e18f ? 1e18f : observations[n] < -1e18f ? -1e18f : observations[n];
    return used;
}

/* y = weight x + bias, for vectors with the given number of components. */
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

/*[tanh*/
static inline void @name@_tanh(int count, float *x)
{
    int n;
    for (n = 0; n < count; n++)
        x[n] = tanhf(x[n]);
}

/*tanh]*/
/*[scale_log*/
/* x ln(1 + |x|) / |x|, which shortens long vectors */
static inline void @name@_scale_log(int count, float *x)
{
    int n, d;
    for (n = 0; n < count; n++, x += @D@) {
        float norm = 1e-30f;
        for (d = 0; d < @D@; d++)
            norm += x[d] * x[d];
        norm = sqrtf(norm);
        norm = log1pf(norm) / norm;
        for (d = 0; d < @D@; d++)
            x[d] *= norm;
    }
}

/*scale_log]*/
/*[scale_tanh*/
/* x tanh |x|, which shortens short vectors */
static inline void @name@_scale_tanh(int count, float *x)
{
    int n, d;
    for (n = 0; n < count; n++, x += @D@) {
        float norm = 1e-30f;
        for (d = 0; d < @D@; d++)
            norm += x[d] * x[d];
        norm = sqrtf(norm);
        norm = tanhf(norm);
        for (d = 0; d < @D@; d++)
            x[d] *= norm;
    }
}

/*scale_tanh]*/
/*[limits*/
/*[schedule*/
/* Set the usual delay of messages, which lowers the gain; 0 by default. If it is negative or not finite, `end` returns
 * -1. */
static inline void @name@_set_delay(@name@_agent *agent, float seconds)
{
    agent->gain = 0.0f;
    if (agent->period > 0.0f && seconds >= 0.0f && isfinite(seconds))
        agent->gain = fminf(@NAME@_LARGEST_GAIN, @NAME@_GAIN_PERIOD / (agent->period + seconds));
}

/*schedule]*/
/* Pass the time of the robot's clock, before `end`; it may wrap. Silence is then counted by this clock, and steps that
 * end late are counted in `late_count`. Without it, a step takes a period. */
static inline void @name@_set_time(@name@_agent *agent, uint32_t microseconds)
{
    agent->time = microseconds;
    agent->has_time = 1;
}

/* Return |x|; the squares of entries relative to the largest one do not overflow. */
static inline float @name@_norm(const float x[@NAME@_D])
{
    float largest = 0.0f, sum = 0.0f;
    int d;
    for (d = 0; d < @NAME@_D; d++)
        largest = fmaxf(largest, fabsf(x[d]));
    for (d = 0; d < @NAME@_D && largest > 0.0f; d++)
        sum += (x[d] / largest) * (x[d] / largest);
    return largest * sqrtf(sum);
}

/* Raise the state to a more severe one. */
static inline void @name@_raise(@name@_agent *agent, int state)
{
    if (state > agent->state)
        agent->state = state;
}

/* Compute s, the sum of forces that stop neighbours nearer than MIN_SEPARATION and push the agent away from them:
 * n (max(0, -<v_ij, n>) / T_b + (MIN_SEPARATION - |r_ij|) / T_b^2) with n = r_ij / |r_ij| and the braking time T_b.
 * Return the number of neighbours in use, without obstacle agents, whose messages a robot may write itself. */
static inline int @name@_sum_forces(const @name@_agent *agent, float braking_time, float s[@NAME@_D])
{
    float r[@NAME@_D], v[@NAME@_D];
    int i, d, neighbours = 0;
    for (d = 0; d < @NAME@_D; d++)
        s[d] = 0.0f;
    for (i = 0; i < agent->count; i++) {
        const @name@_neighbour *other = &agent->neighbours[i];
        const float square = @name@_relative(agent, other, r, v);
        float distance, inner = 0.0f, force;
        if (square < 0.0f)
            continue;
        neighbours += other->group != @NAME@_OBSTACLE;
        distance = sqrtf(square < 1e-16f ? 1e-16f : square); /* coincident agents: no force */
        if (!(distance@to_robot_length@ < @NAME@_MIN_SEPARATION))
            continue;
        for (d = 0; d < @NAME@_D; d++)
            inner += r[d] * v[d];
        force = fmaxf(0.0f, -inner / distance)@to_robot_speed@ / braking_time;
        force += (@NAME@_MIN_SEPARATION - distance@to_robot_length@) / (braking_time * braking_time);
        @name@_add(s, force / distance, r);
    }
    return neighbours;
}

/* Count the time for which no message of a neighbour was in use, and late steps. */
static inline void @name@_count_time(@name@_agent *agent, int neighbours)
{
    const uint32_t period = (uint32_t)fmaxf(fminf(agent->period, 2000.0f) * 1e6f + 0.5f, 1.0f);
    uint32_t elapsed = agent->has_ended ? period : 0u;
    if (agent->has_time && agent->had_time) {
        elapsed = agent->time - agent->end_time; /* modulo 2^32 */
        agent->late_count += elapsed > period + period / 2u;
    }
    agent->silence = agent->silence < UINT32_MAX - elapsed ? agent->silence + elapsed : UINT32_MAX;
    if (neighbours > 0)
        agent->silence = 0;
    agent->end_time = agent->time;
    agent->had_time = agent->has_time;
    agent->has_time = 0;
    agent->has_ended = 1;
}

#ifdef @NAME@_FENCE_LOWER
/* Limit the outward speed near each wall of the fence, to sqrt(MAX_ACCELERATION x) and x / (4 T_b) at the distance x. */
static inline void @name@_keep_inside(@name@_agent *agent, float braking_time, float acceleration[@NAME@_D])
{
    const float lower[@NAME@_D] = @NAME@_FENCE_LOWER, upper[@NAME@_D] = @NAME@_FENCE_UPPER;
    int d, n;
    for (d = 0; d < @NAME@_D; d++)
        for (n = 0; n < 2; n++) {
            const float side = n == 0 ? 1.0f : -1.0f;
            const float x = side * ((n == 0 ? upper[d] : lower[d]) - agent->position[d]); /* negative outside */
            const float speed = fminf(sqrtf(@NAME@_MAX_ACCELERATION * fabsf(x)), fabsf(x) / (4.0f * braking_time));
            const float most = ((x < 0.0f ? -speed : speed) - side * agent->velocity[d]) / braking_time;
            const float excess = side * acceleration[d] - most;
            if (excess > 0.0f)
                acceleration[d] = side * most;
            if (excess > 1e-4f * @NAME@_MAX_ACCELERATION)
                @name@_raise(agent, @NAME@_FENCE);
        }
}
#endif

/* Shorten the acceleration to MAX_ACCELERATION. */
static inline void @name@_shorten(@name@_agent *agent, float acceleration[@NAME@_D])
{
    const float norm = @name@_norm(acceleration);
    int d;
    if (norm > 1.0001f * @NAME@_MAX_ACCELERATION)
        @name@_raise(agent, @NAME@_LIMITED);
    for (d = 0; d < @NAME@_D && norm > @NAME@_MAX_ACCELERATION; d++)
        acceleration[d] *= @NAME@_MAX_ACCELERATION / norm;
}

/* Shorten velocity + acceleration * period to MAX_SPEED. */
static inline void @name@_limit_speed(@name@_agent *agent, float acceleration[@NAME@_D])
{
    float planned[@NAME@_D], change[@NAME@_D], norm;
    int d;
    for (d = 0; d < @NAME@_D; d++)
        planned[d] = agent->velocity[d] + acceleration[d] * agent->period;
    norm = @name@_norm(planned);
    if (!(norm > @NAME@_MAX_SPEED))
        return;
    for (d = 0; d < @NAME@_D; d++) {
        const float limited = (@NAME@_MAX_SPEED / norm * planned[d] - agent->velocity[d]) / agent->period;
        change[d] = limited - acceleration[d];
        acceleration[d] = limited;
    }
    if (@name@_norm(change) > 1e-4f * @NAME@_MAX_ACCELERATION)
        @name@_raise(agent, @NAME@_LIMITED);
}

/* Change the acceleration by the limits, in the order of the README, and set the state. Return 0, with a zero
 * acceleration, if the period, the measured state or the result is invalid, else 1. */
static inline int @name@_limit(@name@_agent *agent, float acceleration[@NAME@_D])
{
    const float given_time = @NAME@_BRAKING_TIME > 0.0f ? @NAME@_BRAKING_TIME : 4.0f * agent->period;
    const float braking_time = fmaxf(given_time, agent->period);
    const uint32_t max_silence = @NAME@_MAX_SILENCE_US;
    float s[@NAME@_D], norm;
    int d, is_valid = agent->period > 0.0f;
    const int neighbours = @name@_sum_forces(agent, braking_time, s);
    @name@_count_time(agent, neighbours);
    agent->state = neighbours > 0 ? @NAME@_OK : @NAME@_ALONE;
    if (max_silence > 0 && agent->silence >= max_silence) {
        for (d = 0; d < @NAME@_D; d++)
            acceleration[d] = -agent->velocity[d] / braking_time;
        @name@_raise(agent, @NAME@_STALE);
    }
    @name@_shorten(agent, acceleration); /* so that a large command cannot outweigh the rules below */
    /* Remove the component against the forces, then add them; forces that balance do not count. */
    norm = @name@_norm(s);
    if (norm > 1e-4f * @NAME@_MIN_SEPARATION / (braking_time * braking_time)) {
        float opposed = 0.0f;
        for (d = 0; d < @NAME@_D; d++)
            opposed += acceleration[d] * (s[d] / norm);
        for (d = 0; d < @NAME@_D; d++)
            acceleration[d] += s[d] - fminf(opposed, 0.0f) * (s[d] / norm);
        @name@_raise(agent, @NAME@_TOO_CLOSE);
        @name@_shorten(agent, acceleration);
    }
#ifdef @NAME@_FENCE_LOWER
    @name@_keep_inside(agent, braking_time, acceleration);
#endif
    if (@NAME@_MAX_SPEED > 0.0f)
        @name@_limit_speed(agent, acceleration);
    @name@_shorten(agent, acceleration);
    for (d = 0; d < @NAME@_D; d++) {
        /* Larger values are refused in messages, too. */
        is_valid &= fabsf(agent->position[d]) <= 1e8f && fabsf(agent->velocity[d]) <= 1e8f;
        is_valid &= isfinite(acceleration[d]) != 0;
    }
    for (d = 0; d < @NAME@_D && !is_valid; d++)
        acceleration[d] = 0.0f;
    return is_valid;
}

/* Forget neighbours and observations, which are too old after missed steps. Unlike after `init`, the step, the clock, the
 * silence, `state` and `late_count` go on. Call it before `begin`. */
static inline void @name@_restart(@name@_agent *agent)
{
    int n;
    agent->count = 0;
    for (n = 0; n < @NAME@_D; n++)
        agent->position[n] = agent->velocity[n] = @initial_state@;
    for (n = 0; n < @NAME@_K * @NAME@_C * @NAME@_D; n++)
        agent->observations[n] = 0.0f;
/*[fixed*/
    agent->initial_count = -1;
/*fixed]*/
}

/*limits]*/
/*[limits*/
/* End a step: compute the acceleration in the robots' units, within the limits. Return the number of neighbours used,
 * or -1 if the controller's acceleration or the measured state is not finite, or the period is invalid. The state is then
 * @NAME@_INVALID and the acceleration zero; if only the controller failed, the limits still change that zero. */
/*limits]*/
/*[unlimited*/
/*[constant_gain*/
/* End a step: compute the acceleration in the robots' units. Return the number of neighbours used, or -1 with a zero
 * acceleration if the acceleration or the measured state is not finite. */
/*constant_gain]*/
/*[schedule*/
/* End a step: compute the acceleration in the robots' units. Return the number of neighbours used, or -1 with a zero
 * acceleration if the acceleration or the measured state is not finite, or the period is invalid. */
/*schedule]*/
/*unlimited]*/
static inline int @name@_end(@name@_agent *agent, float acceleration[@NAME@_D])
{
    int d, n, kept = 0, used = @name@_observe(agent);
    float @buffers@;
/*[near*/
    int near_obstacle = 0; /* is the obstacle channel, @obstacle_channel@, not zero in any hop */
    for (n = 0; n < @NAME@_K; n++)
        for (d = 0; d < @NAME@_D; d++)
            near_obstacle |= agent->observations[(n * @NAME@_C + @obstacle_channel@) * @NAME@_D + d] != 0.0f;
/*near]*/
@network@
/*[clamp_entry*/
    /* Not with fminf and fmaxf, which replace NaN by a number. */
    for (d = 0; d < @D@; d++)
        @output@[d] = @output@[d] > @clamp@ ? @clamp@ : @output@[d] < -@clamp@ ? -@clamp@ : @output@[d];
/*clamp_entry]*/
/*[clamp_norm*/
    {
        const float norm = sqrtf(@square@);
        for (d = 0; d < @D@ && norm > @clamp@; d++)
            @output@[d] *= @clamp@ / norm;
    }
/*clamp_norm]*/
    for (d = 0; d < @NAME@_D; d++)
        acceleration[d] = @output@[d]@scale@@gain@;
    for (d = 0; d < @NAME@_D; d++)
        if (!isfinite(acceleration[d]) || !isfinite(agent->position[d]) || !isfinite(agent->velocity[d]))
            used = -1;
/*[schedule*/
    if (!(agent->gain > 0.0f))
        used = -1;
/*schedule]*/
/*[limits*/
    /* The rules compute squares of accelerations. */
    for (d = 0; d < @NAME@_D; d++)
        if (!(fabsf(acceleration[d]) <= 1e18f))
            used = -1;
/*limits]*/
    for (d = 0; d < @NAME@_D && used < 0; d++)
        acceleration[d] = 0.0f;
/*[limits*/
    if (!@name@_limit(agent, acceleration))
        used = -1;
    if (used < 0)
        agent->state = @NAME@_INVALID;
/*limits]*/
/*[fixed*/
    if (agent->initial_count < 0)
        for (agent->initial_count = 0; agent->initial_count < agent->count; agent->initial_count++)
            agent->initial_neighbours[agent->initial_count] = agent->neighbours[agent->initial_count].sender;
/*fixed]*/
    agent->step++;
/*[whole*/
    /* Drop messages older than LAST_KNOWN steps. */
    for (n = 0; n < agent->count; n++)
        if ((uint32_t)(agent->step - agent->neighbours[n].received_step) <= @NAME@_LAST_KNOWN)
            agent->neighbours[kept++] = agent->neighbours[n];
/*whole]*/
/*[split*/
    /* Drop messages and packets older than LAST_KNOWN steps. */
    for (n = 0; n < agent->count; n++) {
        if ((uint32_t)(agent->step - agent->neighbours[n].received_step) > @NAME@_LAST_KNOWN)
            agent->neighbours[n].is_complete = 0;
        if ((uint32_t)(agent->step - agent->neighbours[n].packet_step) <= @NAME@_LAST_KNOWN)
            agent->neighbours[kept++] = agent->neighbours[n];
    }
/*split]*/
    agent->count = kept;
    return used;
}

#endif
