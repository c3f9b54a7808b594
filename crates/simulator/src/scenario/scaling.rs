//! Scaling of a population to a number of agents.

use std::cmp::Reverse;

use super::{GroupFile, ScenarioFile};

/// A population that cannot be scaled to the requested number of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScalingError {
    /// The groups of one, which are not scaled, already have more agents.
    #[error("{singles} agents of the scenario are groups of one, which are not scaled")]
    TooFewAgents {
        /// The number of groups of one.
        singles: u64,
    },
    /// The population is empty.
    #[error("the scenario has no agents to scale")]
    EmptyPopulation,
}

impl ScenarioFile {
    /// Scales the population to this number of agents. Groups keep their proportions. Groups of one
    /// are not scaled, unless every group has one agent or the number is 0.
    pub fn scale_population(&mut self, agents: u64) -> Result<(), ScalingError> {
        let groups = self.population.get_or_insert_default();
        let count = |group: &GroupFile| group.count.unwrap_or(1);
        let singles = groups.iter().filter(|group| count(group) == 1).count() as u64;
        let has_larger = groups.iter().any(|group| count(group) > 1);
        let (mut groups, agents): (Vec<&mut GroupFile>, u64) = if !has_larger || agents == 0 {
            (groups.iter_mut().collect(), agents)
        } else if let Some(others) = agents.checked_sub(singles) {
            (groups.iter_mut().filter(|group| count(group) != 1).collect(), others)
        } else {
            return Err(ScalingError::TooFewAgents { singles });
        };
        let counts: Vec<u64> = groups.iter().map(|group| group.count.unwrap_or(1)).collect();
        let total: u128 = counts.iter().map(|count| u128::from(*count)).sum();
        if total == 0 {
            return if agents == 0 { Ok(()) } else { Err(ScalingError::EmptyPopulation) };
        }
        // Largest remainder method: each share is rounded down, and the groups with the largest
        // remainders get one more agent until none is left.
        let shares: Vec<u128> =
            counts.iter().map(|count| u128::from(*count) * u128::from(agents)).collect();
        let assigned: u128 = shares.iter().map(|share| share / total).sum();
        let mut by_remainder: Vec<usize> = (0..shares.len()).collect();
        by_remainder.sort_by_key(|group| Reverse(shares[*group] % total));
        let left = usize::try_from(u128::from(agents) - assigned).unwrap_or(usize::MAX);
        for (number, group) in by_remainder.into_iter().enumerate() {
            let count = shares[group] / total + u128::from(number < left);
            groups[group].count = Some(u64::try_from(count).unwrap_or(u64::MAX));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts(file: &ScenarioFile) -> Vec<u64> {
        file.population.iter().flatten().map(|group| group.count.unwrap_or(1)).collect()
    }

    #[test]
    fn groups_keep_their_proportions() {
        let file: ScenarioFile = serde_json::from_value(json!({
            "population": [{"name": "a", "count": 18}, {"name": "b", "count": 6}, {"name": "c"}]
        }))
        .unwrap();
        for (agents, expected) in [
            (25, [18, 6, 1]),
            (49, [36, 12, 1]),
            (1_000_001, [750_000, 250_000, 1]),
            (3, [2, 0, 1]),
            (1, [0, 0, 1]),
            (27, [20, 6, 1]),
            (0, [0, 0, 0]),
        ] {
            let mut file = file.clone();
            file.scale_population(agents).unwrap();
            assert_eq!(counts(&file), expected, "{agents}");
        }
    }

    #[test]
    fn groups_of_one_are_scaled_only_if_there_are_no_others() {
        let population = json!({"population": [{"name": "a"}, {"name": "b"}]});
        let mut file: ScenarioFile = serde_json::from_value(population).unwrap();
        file.scale_population(7).unwrap();
        assert_eq!(counts(&file), [4, 3]);
        let population =
            json!({"population": [{"name": "a", "count": 2}, {"name": "b"}, {"name": "c"}]});
        let mut file: ScenarioFile = serde_json::from_value(population).unwrap();
        assert_eq!(file.scale_population(1), Err(ScalingError::TooFewAgents { singles: 2 }));
    }

    #[test]
    fn empty_population_scales_only_to_zero() {
        let mut file = ScenarioFile::default();
        assert_eq!(file.scale_population(5), Err(ScalingError::EmptyPopulation));
        assert_eq!(file.scale_population(0), Ok(()));
    }
}
