/** Finding boxes by what stands on them. */
import { Graph } from './messages';
import { resultText } from './texts';
import { Box, Tree } from './tree';

/** Every box whose texts hold all words, in order of execution; the model itself is not among them. */
export function matches(tree: Tree, graph: Graph, query: string): Box[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  return [...tree.byId.values()].filter((box) => {
    if (box === tree.root) return false;
    const text = searched(box, graph).toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

function searched(box: Box, graph: Graph): string {
  if (box.kind === 'scope') return `${box.name} ${box.type}`;
  const { name, target, family } = graph.columns;
  const of = box.first;
  return [box.title, box.name, name[of], target[of], family[of], resultText(graph, of)].join(' ');
}
