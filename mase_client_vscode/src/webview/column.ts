/** The editor group in which a page opens: the same one every time. */

/** Numbers of groups, from 1. `pages`: those with a page of ours.  `sources`: those that show its file. */
export interface Groups {
  pages: number[];
  sources: number[];
  active: number;
}

/** The group of another page, else the one beside its file. A number after the last one makes a new group. */
export function columnOf({ pages, sources, active }: Groups): number {
  return pages.length > 0 ? Math.min(...pages) : Math.min(...(sources.length > 0 ? sources : [active])) + 1;
}
