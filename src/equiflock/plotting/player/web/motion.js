/** Whether the user's system asks for less motion. */

/** Its `matches` is true if so: views then jump instead of easing, and flights wait for Play. */
export const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
