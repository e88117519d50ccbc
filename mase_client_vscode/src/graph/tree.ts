/**
 * A graph as a tree: modules hold modules and operations, in order of execution.
 *
 * A scope is a contiguous run of operations, so a module that is called twice appears twice, and no edge between two
 * scopes of one level goes back. If a scope has too many members to look at, they are put into groups.
 */
import { Graph } from './messages';

/** Maximum number of members of a scope side by side. */
export const MOST_MEMBERS = 150;

interface Member {
  /** Stays the same over saves, as long as the model's modules and names do. */
  id: string;
  parent: Scope | undefined;
  /** The operations inside, as a range of indices into the columns. */
  first: number;
  end: number;
}

export interface Operation extends Member {
  kind: 'operation';
  /** The operator, and the layer's own name. */
  title: string;
  name: string;
}

export interface Scope extends Member {
  kind: 'scope';
  /** The name within its parent, and the class; a group has only a name. */
  name: string;
  type: string;
  path: string;
  members: Box[];
}

export type Box = Operation | Scope;

export interface Tree {
  root: Scope;
  /** The operation of each index. */
  operations: Operation[];
  byId: Map<string, Box>;
}

export function buildTree(graph: Graph): Tree {
  const builder = new Builder(graph);
  const { root } = builder;
  graph.columns.row.forEach((_, index) => builder.add(index));
  group(root);
  const byId = new Map<string, Box>();
  enter(root, byId);
  return { root, operations: builder.operations, byId };
}

/** The scopes around a box, the innermost first. */
export function* around(box: Box): Generator<Scope> {
  for (let scope = box.parent; scope !== undefined; scope = scope.parent) yield scope;
}

class Builder {
  readonly operations: Operation[] = [];
  readonly root: Scope;
  private open: Scope[];
  private readonly types: Map<string, string>;
  private readonly runs = new Map<string, number>();

  constructor(private readonly graph: Graph) {
    this.types = new Map(graph.scopes);
    this.root = { kind: 'scope', id: '', name: graph.model, type: '', path: '', parent: undefined, first: 0, end: 0, members: [] };
    this.open = [this.root];
  }

  add(index: number): void {
    const { columns, scopes } = this.graph;
    const path = scopes[columns.scope[index] ?? -1]?.[0] ?? '';
    const scope = this.enter(path, index);
    const title = columns.mase_op[index] || columns.target[index] || columns.op[index] || '';
    const box: Operation = { kind: 'operation', id: `:${columns.name[index]}`, parent: scope, first: index, end: index + 1, title, name: this.nameOf(index, path, title) };
    scope.members.push(box);
    this.operations.push(box);
    for (const each of this.open) each.end = index + 1;
  }

  /** The scope with this path; scopes that do not contain it end before. */
  private enter(path: string, first: number): Scope {
    while (!holds(this.last.path, path)) this.open.pop();
    const rest = path.slice(this.last.path.length).split('.').filter(Boolean);
    for (const name of rest) {
      const parent = this.last;
      const inner = parent.path === '' ? name : `${parent.path}.${name}`;
      const run = this.runs.get(inner) ?? 0;
      this.runs.set(inner, run + 1);
      const id = run === 0 ? inner : `${inner}#${run + 1}`;
      const scope: Scope = { kind: 'scope', id, name, type: this.types.get(inner) ?? '', path: inner, parent, first, end: first, members: [] };
      parent.members.push(scope);
      this.open.push(scope);
    }
    return this.last;
  }

  private get last(): Scope {
    return this.open.at(-1) ?? this.root;
  }

  /** A name that distinguishes an operation from others with its operator: a layer's, a parameter's or an input's. */
  private nameOf(index: number, path: string, title: string): string {
    const { op, target, name } = this.graph.columns;
    const own = target[index] ?? '';
    if (op[index] === 'call_module') return path !== '' && own.startsWith(`${path}.`) ? own.slice(path.length + 1) : own;
    if (op[index] === 'get_attr') return own.split('.').at(-1) ?? '';
    return op[index] === 'placeholder' ? (name[index] ?? '') : title === '' ? (name[index] ?? '') : '';
  }
}

function holds(path: string, inner: string): boolean {
  return path === '' || inner === path || inner.startsWith(`${path}.`);
}

/** Put too many members into groups, which are scopes without a class. */
function group(scope: Scope): void {
  scope.members.forEach((member) => member.kind === 'scope' && group(member));
  while (scope.members.length > MOST_MEMBERS) {
    const size = Math.ceil(Math.sqrt(scope.members.length));
    const groups = Array.from({ length: Math.ceil(scope.members.length / size) }, (_, number) => grouped(scope, number, size));
    scope.members = groups;
  }
}

function grouped(parent: Scope, number: number, size: number): Scope {
  const members = parent.members.slice(number * size, (number + 1) * size);
  const [first, last] = [members[0], members.at(-1)];
  const name = `${first?.kind === 'scope' ? first.name : first?.title} … ${last?.kind === 'scope' ? last.name : last?.title}`;
  const made: Scope = { kind: 'scope', id: `${parent.id}/${number}`, name, type: '', path: parent.path, parent, first: first?.first ?? 0, end: last?.end ?? 0, members };
  members.forEach((member) => (member.parent = made));
  return made;
}

function enter(box: Box, byId: Map<string, Box>): void {
  byId.set(box.id, box);
  if (box.kind === 'scope') box.members.forEach((member) => enter(member, byId));
}
