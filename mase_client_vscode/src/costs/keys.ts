/** The keys of the table, those of an ARIA treegrid whose rows take the focus. */
import { Shown } from './tree';

/** The effect of a key: select a row, open or close a row, or go to the code of the selected one. */
export type Wish = { select: string } | { toggle: string } | { goTo: string } | undefined;

/** The effect of a key while `selected` is selected; `page` is the number of visible rows. */
export function wish(key: string, shown: Shown[], selected: string, page: number): Wish {
  const at = shown.findIndex(({ row }) => row.id === selected);
  const here = shown[at];
  if (here === undefined) return shown[0] && { select: shown[0].row.id };
  const to = (number: number): Wish => {
    const there = shown[Math.min(Math.max(number, 0), shown.length - 1)];
    return there && { select: there.row.id };
  };
  switch (key) {
    case 'ArrowDown':
      return to(at + 1);
    case 'ArrowUp':
      return to(at - 1);
    case 'PageDown':
      return to(at + page);
    case 'PageUp':
      return to(at - page);
    case 'Home':
      return to(0);
    case 'End':
      return to(shown.length - 1);
    case 'ArrowRight':
      return here.open === undefined ? undefined : here.open ? to(at + 1) : { toggle: selected };
    case 'ArrowLeft':
      return here.open ? { toggle: selected } : to(shown.findLastIndex(({ level }, number) => number < at && level < here.level));
    case 'Enter':
      return { goTo: selected };
    case ' ':
      return here.open === undefined ? undefined : { toggle: selected };
  }
  return undefined;
}
