/** The graph by keyboard alone, with the usual keys of trees. */
import { Expansion, isOpen, shown } from '../expansion';
import { Box, Tree } from '../tree';

export interface KeyActions {
  select(box: Box): void;
  toggle(box: Box): void;
  go(box: Box): void;
  search(): void;
  weights(): void;
  zoomIn(): void;
  zoomOut(): void;
  fit(): void;
  actual(): void;
  pan(x: number, y: number): void;
}

const STEP = 60;
const PANS: Record<string, [number, number]> = { ArrowUp: [0, STEP], ArrowDown: [0, -STEP], ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0] };

/** Apply a key to the selected box; false if it has no effect. */
export function pressed(event: KeyboardEvent, tree: Tree, open: Expansion, selected: Box | undefined, actions: KeyActions): boolean {
  const { key } = event;
  const pan = event.shiftKey || event.altKey ? PANS[key] : undefined;
  const plain: Record<string, () => void> = {
    '+': actions.zoomIn,
    '=': actions.zoomIn,
    '-': actions.zoomOut,
    '0': actions.fit,
    '1': actions.actual,
    '/': actions.search,
    w: actions.weights,
  };
  if ((event.ctrlKey || event.metaKey) && key === 'f') actions.search();
  else if (event.ctrlKey || event.metaKey) return false;
  else if (pan !== undefined) actions.pan(...pan);
  else if (plain[key] !== undefined) plain[key]();
  else return moved(key, tree, open, selected, actions);
  return true;
}

function moved(key: string, tree: Tree, open: Expansion, selected: Box | undefined, { select, toggle, go }: KeyActions): boolean {
  const order = [...shown(tree.root, open)];
  const at = selected === undefined ? -1 : order.indexOf(selected);
  const step = (target: Box | undefined) => target !== undefined && (select(target), true);
  if (key === 'ArrowDown') return step(order[at + 1]);
  if (key === 'ArrowUp') return step(order[Math.max(0, at - 1)]);
  if (key === 'Home') return step(order[0]);
  if (key === 'End') return step(order.at(-1));
  if (selected === undefined) return false;
  if (key === 'Enter') return (selected.kind === 'scope' ? toggle : go)(selected), true;
  if (key === ' ' && selected.kind === 'scope') return toggle(selected), true;
  if (key === 'ArrowRight') {
    if (selected.kind !== 'scope') return false;
    return isOpen(selected, open) ? step(selected.members[0]) : (toggle(selected), true);
  }
  if (key !== 'ArrowLeft') return false;
  if (isOpen(selected, open)) return toggle(selected), true;
  return selected.parent === tree.root ? false : step(selected.parent);
}
