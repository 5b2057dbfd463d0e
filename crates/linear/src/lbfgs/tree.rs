//! The pairs of classes between which probability is moved for a free bias: a tree over all classes, so that any change
//! of their sums can be made, of the pairs that rows are most undecided between.

/// A spanning tree: the other classes, each with its parent on the path to the root, which is class 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tree {
    /// From the root outwards.
    edges: Vec<(usize, usize)>,
    parents: Vec<usize>,
}

impl Tree {
    /// From `edges` listed from the root outwards; `None` if they are not a tree in that order.
    pub fn new(classes: usize, edges: Vec<(usize, usize)>) -> Option<Tree> {
        let mut parents = vec![usize::MAX; classes];
        parents[0] = 0;
        for &(class, parent) in &edges {
            let is_new = parents.get(class) == Some(&usize::MAX);
            let is_known = parents.get(parent).is_some_and(|next| *next != usize::MAX);
            if !(is_new && is_known) {
                return None;
            }
            parents[class] = parent;
        }
        (edges.len() + 1 == classes).then_some(Tree { edges, parents })
    }

    /// All classes next to the root.
    pub fn star(classes: usize) -> Tree {
        Tree {
            edges: (1..classes).map(|class| (class, 0)).collect(),
            parents: vec![0; classes],
        }
    }

    /// The tree of the largest overlaps, [classes, classes], both triangles added (Prim).
    pub fn of_overlaps(classes: usize, overlaps: &[f64]) -> Tree {
        let overlap = |a: usize, b: usize| overlaps[a * classes + b] + overlaps[b * classes + a];
        // The best edge from each class to the tree.
        let mut best: Vec<(usize, f64)> = (0..classes).map(|k| (0, overlap(k, 0))).collect();
        let mut left: Vec<usize> = (1..classes).collect();
        let mut edges = Vec::with_capacity(left.len());
        while let Some(place) =
            (0..left.len()).max_by(|&a, &b| best[left[a]].1.total_cmp(&best[left[b]].1))
        {
            let class = left.swap_remove(place);
            edges.push((class, best[class].0));
            for &other in &left {
                if overlap(other, class) > best[other].1 {
                    best[other] = (class, overlap(other, class));
                }
            }
        }
        let mut parents = vec![0; classes];
        for &(class, parent) in &edges {
            parents[class] = parent;
        }
        Tree { edges, parents }
    }

    /// The class before each; of the root itself.
    pub fn parents(&self) -> &[usize] {
        &self.parents
    }

    /// Every class but the root with its parent, from the root outwards.
    pub fn edges(&self) -> &[(usize, usize)] {
        &self.edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_the_largest_overlaps() {
        // 2 is next to 0, 1 next to 2, 3 next to 1.
        let mut overlaps = vec![0.1; 16];
        for (a, b) in [(0, 2), (2, 1), (1, 3)] {
            overlaps[a * 4 + b] = 5.0;
        }
        let tree = Tree::of_overlaps(4, &overlaps);
        assert_eq!(tree.parents(), [0, 2, 0, 1]);
        assert_eq!(tree.edges(), [(2, 0), (1, 2), (3, 1)]);
        assert_eq!(Tree::new(4, tree.edges().to_vec()), Some(tree));
        assert_eq!(Tree::new(3, vec![(1, 2), (2, 0)]), None);
        assert_eq!(Tree::new(3, vec![(1, 0), (1, 0)]), None);
        assert_eq!(Tree::new(3, vec![(1, 0)]), None);
    }
}
