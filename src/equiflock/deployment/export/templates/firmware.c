/* Replays the recorded states and messages of one agent on a Cortex-M4F and prints its accelerations and the ticks of
 * each step. Output uses semihosting, the debugger's I/O interface, which QEMU implements. */
#include "@file@.h"

#include "recording.h"

extern uint32_t stack_top, data_begin, data_end, data_stored, bss_begin, bss_end;

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SYSTICK_CONTROL REGISTER(0xE000E010u)
#define SYSTICK_RELOAD REGISTER(0xE000E014u)
#define SYSTICK_NOW REGISTER(0xE000E018u)
#define COPROCESSORS REGISTER(0xE000ED88u)

@name@_agent agent; /* not static, so that nm lists its size */

/* Make a semihosting call. */
static int semihost(int call, const void *argument)
{
    register int r0 __asm__("r0") = call;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

/* Print a label and a word as 8 hexadecimal digits. */
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

/* Exit the emulator. */
static void leave(void)
{
    semihost(0x18, (const void *)0x20026); /* ADP_Stopped_ApplicationExit */
    for (;;)
        ;
}

/* Not inlined, so that nm lists the size of each function. */
__attribute__((noinline)) void agent_init(uint32_t number, uint8_t group)
{
/*[no_period*/
    @name@_init(&agent, number, group);
/*no_period]*/
/*[period*/
    @name@_init(&agent, number, group, RECORDED_PERIOD);
/*period]*/
}

__attribute__((noinline)) void agent_begin(const float *position, const float *velocity, uint8_t *message)
{
    @name@_begin(&agent, position, velocity, message);
}

__attribute__((noinline)) int agent_receive(const uint8_t *message, size_t length)
{
    return @name@_receive(&agent, message, length);
}

__attribute__((noinline)) int agent_end(float *acceleration)
{
    return @name@_end(&agent, acceleration);
}

/* Run all recorded steps. */
static void replay(void)
{
    static uint8_t message[@NAME@_MESSAGE];
    const uint8_t *next_message = recorded_messages;
    int step, n, d;
    agent_init(RECORDED_NUMBER, RECORDED_GROUP);
    for (step = 0; step < RECORDED_STEPS; step++) {
        @name@_word word;
        float acceleration[@NAME@_D];
        uint32_t began = SYSTICK_NOW, took;
        agent_begin(recorded_positions[step], recorded_velocities[step], message);
        for (n = 0; n < recorded_counts[step]; n++, next_message += @NAME@_MESSAGE)
            if (agent_receive(next_message, @NAME@_MESSAGE) != @NAME@_RECEIVED)
                write_word("dropped", (uint32_t)step);
        agent_end(acceleration);
        took = (began - SYSTICK_NOW) & 0xffffffu; /* SysTick counts down */
        for (d = 0; d < @NAME@_D; d++) {
            word.number = acceleration[d];
            write_word("a", word.bits);
        }
        write_word("ticks", took);
/*[limits*/
        write_word("state", (uint32_t)agent.state);
/*limits]*/
    }
}

/* Measure the ticks of a loop of 200,000 instructions, to convert ticks to instructions. */
static void calibrate(void)
{
    uint32_t began = SYSTICK_NOW, rounds = 100000;
    __asm__ volatile("1: subs %0, #1\n bne 1b" : "+l"(rounds) : : "cc");
    write_word("calibration", (began - SYSTICK_NOW) & 0xffffffu);
}

/* Initialise RAM, FPU and SysTick, then run. */
void reset(void)
{
    uint32_t *to = &data_begin, *from = &data_stored;
    while (to < &data_end)
        *to++ = *from++;
    for (to = &bss_begin; to < &bss_end; to++)
        *to = 0;
    COPROCESSORS |= 0xfu << 20; /* enable the FPU */
    __asm__ volatile("dsb\nisb");
    SYSTICK_RELOAD = 0xffffffu;
    SYSTICK_NOW = 0;
    SYSTICK_CONTROL = 5; /* enable, processor clock */
    calibrate();
    replay();
    leave();
}

void fault(void)
{
    semihost(0x04, "fault\n");
    leave();
}

/* Vector table: initial stack pointer, reset handler, fault handlers. */
typedef union {
    uint32_t *stack;
    void (*run)(void);
} vector;

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    {.stack = &stack_top}, {.run = reset}, {.run = fault}, {.run = fault}, {.run = fault}, {.run = fault}, {.run = fault},
};
