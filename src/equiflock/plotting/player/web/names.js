/** Display names of controllers, scenarios and options. */

/** Names of controllers that capitals alone do not give. */
const DISPLAY_NAMES = {
  tanner: "Tanner, centralized",
  "tanner-bounded": "Tanner, bounded",
  "tanner-dynamic": "Tanner, dynamic",
  "tanner-fixed": "Tanner, fixed",
  tdagnn: "TDAGNN",
  "tdagnn-tf": "TDAGNN-TF",
  "tdagnn-tf-mean": "TDAGNN-TF-mean",
  etdagnn: "ETDAGNN",
};
/** Networks of which there are several trainings: `etdagnn-robust` becomes ETDAGNN, robust. */
const TRAINING = /^(e?tdagnn)-(.+)$/;

/**
 * Format a controller's name for display: `etdagnn:3` becomes ETDAGNN, seed 3; `a-b:beta=1` becomes A-B, beta 1; a
 * path, its file name.
 */
export function formatControllerName(name) {
  const [, head, options] = name.match(/^([\w-]+)(?::(.*))?$/) ?? [];
  if (!head) return name.split("/").at(-1); // a file
  const [, network, training] = (head in DISPLAY_NAMES ? null : head.match(TRAINING)) ?? [];
  const displayName =
    DISPLAY_NAMES[head] ?? (network ? `${DISPLAY_NAMES[network]}, ${training}` : capitalizeName(head));
  if (!options) return displayName;
  const details = /^\d+$/.test(options) ? `seed ${options}` : options.replaceAll(":", ", ").replaceAll("=", " ");
  return `${displayName}, ${details}`;
}

/** Capitalize the words of a law's name, most of which are authors; the suffix -local becomes ", local". */
const capitalizeName = (name) =>
  name.replace(/-local$/, ", local").replaceAll(/(?<=^|-)[a-z]/g, (letter) => letter.toUpperCase());

/** Format a name for display: `clear_time` and `clear-time` become Clear time. */
export const formatName = (name) => (name[0].toUpperCase() + name.slice(1)).replaceAll(/[_-]/g, " ");

/** Format a channel: ["velocity:among=same", "mean"] becomes "μ velocity, same", and a sum begins with Σ. */
export function formatChannel(feature, aggregation) {
  const [name, ...options] = feature.split(":");
  const among = options.find((option) => option.startsWith("among="))?.slice(6);
  return `${aggregation === "mean" ? "μ" : "Σ"} ${name.replaceAll("-", " ")}${among ? `, ${among}` : ""}`;
}
