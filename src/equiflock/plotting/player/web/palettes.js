/** Colours of the scene; theme.css has those of the rest of the page. */

/**
 * Colours of each theme, "#rrggbb" or "#rrggbbaa". Agents are coloured by heading: oklch(lightness chroma heading) as
 * in CSS, with the angle from the x axis as hue. If there are several groups, each has one of the colours `groups`
 * instead, most of them after Okabe and Ito, which colour-blind readers can distinguish, the first two best; on the light
 * background some are darker. They differ from the colours of the two panels' curves. Everything but grid, trails and
 * the inside of disks has a contrast of 3 or more with the background. Failed agents have the colour `failed`. `brush`, `obstacle` and
 * `lead` are also the kinds of highlights.
 */
export const PALETTES = {
  dark: {
    background: "#0b0f17",
    hairline: "#2a3344",
    grid: "#9fb4d816",
    edge: "#a9bfe678",
    lost: "#ff6b6ba0",
    failed: "#7d8696",
    ink: "#ffffff",
    disk: "#7c5cf02e",
    obstacle: "#a78bfa",
    brush: "#ff6b6b",
    lead: "#4ade80",
    goal: "#4ade80",
    place: "#ffffff59",
    gate: "#4ade80",
    wall: "#a78bfa",
    groups: ["#f0e442", "#19b58b", "#cc79a7", "#56b4e9", "#e69f00", "#d55e00", "#4f8fe8", "#c8c8c8"],
    link: "#8ec9ff", // links of an inspected agent, and its radius
    channels: ["#ffd84d", "#ff8a5c", "#d58cff", "#3ddbb0", "#ff8fc0", "#9fd356", "#c9b28a", "#a9b4c8"], // its vectors
    lightness: 0.8,
    chroma: 0.14,
    trail: 0.5, // opacity at the agent
  },
  light: {
    background: "#fbfaf7",
    hairline: "#d8d4ca",
    grid: "#3b332012",
    edge: "#3a425592",
    lost: "#d9363eb8",
    failed: "#757a83",
    ink: "#14171f",
    disk: "#7c5cf024",
    obstacle: "#7c4fe0",
    brush: "#d9363e",
    lead: "#15924a",
    goal: "#15924a",
    place: "#14171f84",
    gate: "#15924a",
    wall: "#7c4fe0",
    groups: ["#4b2e63", "#009e73", "#b8608f", "#b87900", "#2f8fc4", "#d55e00", "#0072b2", "#808080"],
    link: "#1f6fb5",
    channels: ["#a87900", "#d1431f", "#8a3fc4", "#00876a", "#c7307f", "#4f7d0c", "#7d6330", "#566073"],
    lightness: 0.6,
    chroma: 0.15,
    trail: 0.36,
  },
};
