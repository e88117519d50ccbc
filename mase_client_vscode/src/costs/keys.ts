/** The keys of the table, as ARIA has them for a treegrid whose rows take the focus. */
import { Shown } from './tree';

/** What a key asks for: another row, a row to open or close, or the code of the selected one. */
export type Wish = { select: string } | { toggle: string } | { goTo: string } | undefined;

/** What a key means where `selected` is selected; `page` is how many rows are in sight. */
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
