/** Finds boxes by their texts. */
import { Graph } from './messages';
import { resultText } from './texts';
import { Box, Tree } from './tree';

/** Every box whose texts contain all words, in order of execution, without the model itself. */
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
