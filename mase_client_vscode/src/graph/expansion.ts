/** Decides which scopes are open: at first as many as can be seen at a glance, without repeated blocks. */
import { Box, Scope, Tree, around } from './tree';

/** Maximum number of boxes at first. */
const AT_FIRST = 60;

export type Expansion = ReadonlySet<string>;

/** The scopes that a new page opens: level by level, while the graph stays small. */
export function initial(tree: Tree): Set<string> {
  const open = new Set([tree.root.id]);
  let boxes = tree.root.members.length;
  for (let level = scopesOf(tree.root); level.length > 0; ) {
    const next: Scope[] = [];
    for (const scope of level) {
      if (boxes + scope.members.length > AT_FIRST || isRepeated(scope)) continue;
      boxes += scope.members.length;
      open.add(scope.id);
      next.push(...scopesOf(scope));
    }
    level = next;
  }
  return open;
}

/** Does it have a sibling of the same class? */
export function isRepeated(scope: Scope): boolean {
  const kin = scope.parent === undefined ? [] : scopesOf(scope.parent).filter(({ type }) => type === scope.type);
  return kin.length > 1;
}

/** All scopes, the outermost first. */
export function all(tree: Tree): Set<string> {
  const open = new Set<string>();
  for (let level = [tree.root]; level.length > 0; level = level.flatMap(scopesOf)) level.forEach(({ id }) => open.add(id));
  return open;
}

/** The box that stands for another one: itself, or the outermost closed scope around it. */
export function visible(box: Box, open: Expansion): Box {
  let shown = box;
  for (const scope of around(box)) if (!open.has(scope.id)) shown = scope;
  return shown;
}

/** Is a box a scope whose members are shown? */
export function isOpen(box: Box, open: Expansion): box is Scope {
  return box.kind === 'scope' && open.has(box.id);
}

/** All shown boxes, scopes before their members, in order of execution, without the root. */
export function* shown(scope: Scope, open: Expansion): Generator<Box> {
  for (const member of scope.members) {
    yield member;
    if (isOpen(member, open)) yield* shown(member, open);
  }
}

function scopesOf(scope: Scope): Scope[] {
  return scope.members.filter((member): member is Scope => member.kind === 'scope');
}
