/** Tells in the sidebar that its settings do not fly yet, while a start is searched for. */

import { byId } from "./player/dom.js";
import { formatControllerName, formatName } from "./player/names.js";

/** What acts on the flight that is shown rather than on the one that is searched for. */
const IN_FLIGHT_CONTROLS = ["controller-law", "compare-law", "environment"];

/**
 * Show that the settings of the form are searched for, and what flies meanwhile; or, after the search, hide it.
 * @param {boolean} isSearching
 * @param {?object} setting the setting that flies; null if none does
 */
export function showSearch(isSearching, setting) {
  byId("searching").hidden = !isSearching;
  for (const id of IN_FLIGHT_CONTROLS) byId(id).inert = isSearching;
  if (!isSearching) return;
  const names =
    setting && [setting.controller, setting.compare].filter(Boolean).map(formatControllerName).join(" and ");
  const flying = setting && `${names}, ${formatName(setting.scenario)}, ${setting.agents.toLocaleString("en")} agents`;
  byId("searching").textContent =
    `A start with these settings is searched for. ${flying ? `Still flying: ${flying}.` : "Nothing flies yet."}`;
}
