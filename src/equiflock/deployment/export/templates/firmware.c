/* Replays what one agent measured and heard, on a Cortex-M4F, and writes what it would do, and instructions per step.
 *
 * Everything goes through semihosting, the debugger's way to talk, which QEMU answers. */
#include "@file@.h"

#include "recording.h"

extern uint32_t stack_top, data_begin, data_end, data_stored, bss_begin, bss_end;

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SYSTICK_CONTROL REGISTER(0xE000E010u)
#define SYSTICK_RELOAD REGISTER(0xE000E014u)
#define SYSTICK_NOW REGISTER(0xE000E018u)
#define COPROCESSORS REGISTER(0xE000ED88u)

@name@_agent agent; /* not static: its size stands in the list of symbols */

static int semihost(int call, const void *argument)
{
    register int r0 __asm__("r0") = call;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void write_word(const char *what, uint32_t word)
{
    char text[12];
    int n;
    text[0] = ' ';
    for (n = 0; n < 8; n++)
        text[n + 1] = "0123456789abcdef"[(word >> (28 - 4 * n)) & 15u];
    text[9] = '\n';
    text[10] = 0;
    semihost(0x04, what);
    semihost(0x04, text);
}

static void leave(void)
{
    semihost(0x18, (const void *)0x20026); /* the application has ended */
    for (;;)
        ;
}

/* The four calls of a step, each by itself, so that their sizes stand in the list of symbols. */
__attribute__((noinline)) void agent_init(uint32_t number, uint8_t group)
{
    @name@_init(&agent, number, group);
}

__attribute__((noinline)) void agent_begin(const float *position, const float *velocity, uint8_t *message)
{
    @name@_begin(&agent, position, velocity, message);
}

__attribute__((noinline)) int agent_hear(const uint8_t *message, size_t length)
{
    return @name@_hear(&agent, message, length);
}

__attribute__((noinline)) int agent_end(float *acceleration)
{
    return @name@_end(&agent, acceleration);
}

static void replay(void)
{
    static uint8_t message[@NAME@_MESSAGE];
    const uint8_t *heard = recorded_messages;
    int step, n, d;
    agent_init(RECORDED_NUMBER, RECORDED_GROUP);
    for (step = 0; step < RECORDED_STEPS; step++) {
        @name@_word word;
        float acceleration[@NAME@_D];
        uint32_t began = SYSTICK_NOW, took;
        agent_begin(recorded_positions[step], recorded_velocities[step], message);
        for (n = 0; n < recorded_counts[step]; n++, heard += @NAME@_MESSAGE)
            if (agent_hear(heard, @NAME@_MESSAGE) != @NAME@_HEARD)
                write_word("dropped", (uint32_t)step);
        agent_end(acceleration);
        took = (began - SYSTICK_NOW) & 0xffffffu; /* it counts down */
        for (d = 0; d < @NAME@_D; d++) {
            word.number = acceleration[d];
            write_word("a", word.bits);
        }
        write_word("ticks", took);
    }
}

/* A loop of which the number of instructions is known, by which ticks are turned into instructions. */
static void calibrate(void)
{
    uint32_t began = SYSTICK_NOW, rounds = 100000;
    __asm__ volatile("1: subs %0, #1\n bne 1b" : "+l"(rounds) : : "cc");
    write_word("calibration", (began - SYSTICK_NOW) & 0xffffffu);
}

void reset(void)
{
    uint32_t *to = &data_begin, *from = &data_stored;
    while (to < &data_end)
        *to++ = *from++;
    for (to = &bss_begin; to < &bss_end; to++)
        *to = 0;
    COPROCESSORS |= 0xfu << 20; /* switch the floating point unit on */
    __asm__ volatile("dsb\nisb");
    SYSTICK_RELOAD = 0xffffffu;
    SYSTICK_NOW = 0;
    SYSTICK_CONTROL = 5; /* by the processor's clock */
    calibrate();
    replay();
    leave();
}

void fault(void)
{
    semihost(0x04, "fault\n");
    leave();
}

/* Where the processor finds its stack, and what to run at a reset, and when something is wrong. */
typedef union {
    uint32_t *stack;
    void (*run)(void);
} vector;

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    {.stack = &stack_top}, {.run = reset}, {.run = fault}, {.run = fault}, {.run = fault}, {.run = fault}, {.run = fault},
};
